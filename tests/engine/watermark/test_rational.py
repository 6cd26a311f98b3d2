from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engine.watermark.rational import RationalResampler

RATES = [(24000, 16000), (16000, 24000), (44100, 16000), (8000, 16000), (48000, 16000)]


@pytest.mark.parametrize(("source", "target"), RATES)
def test_a_tone_keeps_its_place(source: int, target: int) -> None:
    tone = np.sin(2 * np.pi * 440 * np.arange(source // 4) / source).astype(np.float32)
    resampler = RationalResampler(source, target)
    made = np.concatenate([resampler.push(tone), resampler.finish()])
    wanted = np.sin(2 * np.pi * 440 * np.arange(len(made)) / target)
    assert len(made) == -(-len(tone) * target // source)
    assert np.abs(made - wanted)[100:-100].max() < 2e-3


@settings(max_examples=40, deadline=None)
@given(
    rates=st.sampled_from(RATES),
    sizes=st.lists(st.integers(0, 700), min_size=1, max_size=12),
)
def test_any_split_gives_the_same_samples(rates: tuple[int, int], sizes: list[int]) -> None:
    samples = np.random.default_rng(0).standard_normal(sum(sizes)).astype(np.float32)
    streamed, whole = RationalResampler(*rates), RationalResampler(*rates)
    parts, start = [], 0
    for size in sizes:
        parts.append(streamed.push(samples[start : start + size]))
        start += size
        made = sum(map(len, parts))
        assert start - made * rates[0] / rates[1] <= streamed.hold_back + rates[0] / rates[1] + 1
    parts.append(streamed.finish())
    reference = np.concatenate([whole.push(samples), whole.finish()])
    np.testing.assert_allclose(np.concatenate(parts), reference, atol=1e-5)
