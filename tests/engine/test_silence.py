import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.errors import SynthesisFailed
from antiphon.engine.silence import SilenceGuard

RATE = 1000


def guarded(samples: np.ndarray, cuts: list[int]) -> bool:
    """Whether a guard objects to the samples, handed over in pieces."""
    guard = SilenceGuard(RATE)
    try:
        for piece in np.split(samples, sorted(cuts)):
            guard.check(piece)
        guard.finish()
    except SynthesisFailed:
        return True
    return False


@given(
    gap=st.integers(0, 6000),
    cuts=st.lists(st.integers(0, 7000), max_size=8),
)
def test_only_a_long_silence_is_refused_however_it_arrives(gap: int, cuts: list[int]) -> None:
    speech = np.full(500, 0.1, np.float32)
    samples = np.concatenate([speech, np.zeros(gap, np.float32), speech])
    assert guarded(samples, [min(cut, len(samples)) for cut in cuts]) == (gap > 3 * RATE)


def test_a_turn_without_any_sound_is_a_fault() -> None:
    assert guarded(np.zeros(100, np.float32), [])
    assert not guarded(np.zeros(0, np.float32), [])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_samples_that_are_not_numbers_are_a_fault(value: float) -> None:
    assert guarded(np.array([0.1, value], np.float32), [])
