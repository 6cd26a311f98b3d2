from __future__ import annotations

import importlib.util
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engine.errors import WatermarkUnavailable
from antiphon.engine.voice.resample import resample
from antiphon.engine.watermark import perth_network
from antiphon.engine.watermark.load import load_watermark
from antiphon.engine.watermark.marked import FloatSamples
from antiphon.engine.watermark.perth import STRENGTH, PerthWatermark
from antiphon.engine.watermark.perth_filter import minimum_phase
from tests.engine.watermark.speech import RATE_HZ, marked, speech


@pytest.fixture(scope="module")
def perth() -> PerthWatermark:
    return PerthWatermark()


@pytest.fixture(scope="module")
def whole(perth: PerthWatermark) -> FloatSamples:
    return marked(perth, speech(), [len(speech())], RATE_HZ)


@settings(max_examples=12, deadline=None)
@given(sizes=st.lists(st.integers(1, 9000), min_size=1, max_size=8))
def test_streamed_equals_whole_for_every_split(sizes: list[int]) -> None:
    watermark = _shared()
    streamed = marked(watermark, speech(), [max(7, s) for s in sizes], RATE_HZ)
    reference = marked(watermark, speech(), [len(speech())], RATE_HZ)
    assert len(streamed) == len(speech())
    assert np.abs(streamed - reference).max() < 1e-6


_PERTH: list[PerthWatermark] = []


def _shared() -> PerthWatermark:
    if not _PERTH:
        _PERTH.append(PerthWatermark())
    return _PERTH[0]


def test_nothing_is_held_back_and_nothing_is_left(perth: PerthWatermark) -> None:
    stream = perth.stream(RATE_HZ)
    assert stream.hold_back_samples == 0
    assert [len(stream.push(speech()[:n])) for n in (0, 1, 480)] == [0, 1, 480]
    assert len(stream.finish()) == 0


def test_silence_stays_exactly_silent(perth: PerthWatermark) -> None:
    silence = np.zeros(RATE_HZ, np.float32)
    assert not marked(perth, silence, [480], RATE_HZ).any()
    # Behind speech the filter rings for 64 ms, no longer.
    after = marked(perth, np.concatenate([speech(), silence]), [480], RATE_HZ)
    assert not after[len(speech()) + round(0.064 * RATE_HZ) :].any()


def test_only_the_band_below_2_khz_is_changed(perth: PerthWatermark) -> None:
    noise = (0.1 * np.random.default_rng(0).standard_normal(4 * RATE_HZ)).astype(np.float32)
    change = np.abs(np.fft.rfft(marked(perth, noise, [len(noise)], RATE_HZ))) / np.abs(
        np.fft.rfft(noise)
    )
    frequency = np.fft.rfftfreq(len(noise), 1 / RATE_HZ)
    above = 20 * np.log10(np.median(change[frequency > 2200]))
    below = 20 * np.log10(change[(frequency > 100) & (frequency < 1950)])
    assert abs(above) < 0.1
    assert 1.5 < np.median(np.abs(below)) < 3.0


def test_splits_make_no_clicks(perth: PerthWatermark, whole: FloatSamples) -> None:
    # The bend (second difference) of the added signal at piece borders, against elsewhere.
    added = marked(perth, speech(), [480], RATE_HZ) - speech()
    bend = np.diff(added.astype(np.float64), 2) ** 2
    at_borders = bend[479 - 1 :: 480].mean()
    assert at_borders < 1.5 * bend.mean()
    assert np.abs(whole).max() <= 1


def test_every_turn_starts_clean(perth: PerthWatermark) -> None:
    first = perth.stream(RATE_HZ)
    first.push(speech())
    click = np.zeros(100, np.float32)
    click[0] = 0.5
    fresh, other = perth.stream(RATE_HZ).push(click), perth.stream(RATE_HZ).push(click)
    np.testing.assert_array_equal(fresh.samples, other.samples)
    assert fresh.watermark == "perth"


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 24000, 44100, 48000])
def test_found_at_every_rate(perth: PerthWatermark, rate: int) -> None:
    samples = resample(speech(), RATE_HZ, rate)
    found = perth.detect(marked(perth, samples, [rate // 10], rate), rate)
    assert found.marked
    assert found.score > 0.9
    assert not perth.detect(samples, rate).marked


def test_found_at_another_rate_than_it_was_marked_at(
    perth: PerthWatermark, whole: FloatSamples
) -> None:
    assert perth.detect(resample(whole, RATE_HZ, 8000), 8000).marked


def test_spans_say_where(perth: PerthWatermark, whole: FloatSamples) -> None:
    clean = speech()
    mixed = np.concatenate([clean, clean, whole, clean])
    found = perth.detect(mixed, RATE_HZ)
    assert found.marked
    (span,) = found.spans
    start = 2 * len(clean) / RATE_HZ
    assert span == pytest.approx((start, start + len(whole) / RATE_HZ), abs=1.1)


def test_a_span_reaches_the_ends_of_a_marked_recording(
    perth: PerthWatermark, whole: FloatSamples
) -> None:
    (span,) = perth.detect(whole, RATE_HZ).spans
    assert span == pytest.approx((0, len(whole) / RATE_HZ))


@pytest.mark.parametrize("samples", [0, 1, 100, RATE_HZ])
def test_silence_and_shreds_are_not_marked(perth: PerthWatermark, samples: int) -> None:
    found = perth.detect(np.zeros(samples, np.float32), RATE_HZ)
    assert (found.marked, found.score, found.spans) == (False, 0.0, ())


def test_noise_is_not_marked(perth: PerthWatermark) -> None:
    rng = np.random.default_rng(3)
    for _ in range(5):
        noise = (0.1 * rng.standard_normal(3 * RATE_HZ)).astype(np.float32)
        assert not perth.detect(noise, RATE_HZ).marked


def test_the_filter_is_minimum_phase_and_as_loud_as_asked() -> None:
    gains = 3 * np.sign(np.random.default_rng(0).standard_normal(128))
    taps = minimum_phase(gains, 24000)
    assert len(taps) == 1536
    assert np.argmax(np.abs(taps)) == 0
    response = 20 * np.log10(np.abs(np.fft.rfft(taps, 1536)))
    # Between bins of unlike sign the gain passes through zero; within runs it is as asked.
    runs = np.flatnonzero((gains[1:-1] == gains[2:]) & (gains[1:-1] == gains[:-2])) + 1
    assert len(runs)
    np.testing.assert_allclose(response[runs], gains[runs], atol=1.0)


def test_nothing_but_the_wheel_is_needed() -> None:
    assert "torchaudio" not in sys.modules
    assert "perth" not in sys.modules
    assert importlib.util.find_spec("perth") is not None
    assert STRENGTH > 1


def test_without_the_wheel_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perth_network.util, "find_spec", lambda _: None)
    with pytest.raises(WatermarkUnavailable, match="pip install resemble-perth"):
        load_watermark("perth")
