"""When silence is too long."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.acoustic.watchdog import Silence


def _ticks(silence: Silence, *, loaded: bool, heard: int = 0) -> int:
    count = 1
    while not silence.tick(heard, loaded=loaded):
        count += 1
    return count


def test_silence_is_given_up_behind_its_limit_and_loading_behind_its_own() -> None:
    for loaded, limit_s in ((True, 8.0), (False, 100.0)):
        silence = Silence(8.0, 100.0)
        assert limit_s < _ticks(silence, loaded=loaded) * silence.tick_s <= 1.25 * limit_s


@given(gaps=st.lists(st.integers(1, 4), max_size=50))
def test_who_speaks_within_the_limit_is_never_given_up(gaps: list[int]) -> None:
    silence = Silence(8.0, 100.0)
    for heard, gap in enumerate(gaps, start=1):
        assert not any(silence.tick(heard, loaded=True) for _ in range(gap))


def test_what_was_said_while_the_watcher_was_stopped_counts() -> None:
    # However long that took: one tick is one tick.
    silence = Silence(8.0, 100.0)
    for _ in range(4):
        assert not silence.tick(0, loaded=True)
    assert not silence.tick(1, loaded=True)
    assert _ticks(silence, loaded=True, heard=1) == 5
