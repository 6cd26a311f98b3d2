"""Each defect, put into clean recordings, is found in 90 %; clean ones are blamed in 5 %."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from antiphon.engine.audio_file import DecodedAudio
from antiphon.engine.voice.prepare import Heard, set_level, speech_samples, trim_silence
from antiphon.engine.voice.quality import (
    Bounds,
    QualityReport,
    QualityThresholds,
    Verdict,
    assess,
    dnsmos,
    opinion_windows,
    speaker_similarity,
)
from antiphon.engine.voice.quality_measures import (
    Analysis,
    analyse,
    bandwidth_hz,
    clipped_share,
    decay_s,
    snr_db,
)
from antiphon.engine.voice.reference import SpeakerEncoder
from antiphon.engine.voice.resample import resample
from bench.defects import RATE, Samples, clipped, in_a_room, lowpassed, robotic, with_noise
from tests import golden
from tests.engine.voice.recordings import clean, nano_file

BOUNDS = QualityThresholds()


def analysis(samples: Samples) -> Analysis:
    return analyse(resample(samples, RATE, 16_000))


def share(values: list[float], bounds: Bounds, at_least: Verdict) -> float:
    """Return the share of recordings that get this verdict or a worse one."""
    order = list(Verdict)
    worse = [order.index(bounds.verdict(value)) >= order.index(at_least) for value in values]
    return sum(worse) / len(worse)


MEASURES: dict[str, tuple[Callable[[Samples], float], Bounds]] = {
    "snr_db": (lambda x: snr_db(analysis(x)), BOUNDS.snr_db),
    "clipped": (lambda x: 100 * clipped_share(x), BOUNDS.clipped_percent),
    "decay_s": (lambda x: decay_s(analysis(x)), BOUNDS.decay_s),
    "bandwidth_hz": (lambda x: bandwidth_hz(x, RATE), BOUNDS.bandwidth_hz),
    "speech_s": (lambda x: analysis(x).speech_s, BOUNDS.speech_s),
}

DEFECTS: dict[str, tuple[str, Verdict, Callable[[Samples, int], Samples]]] = {
    "white noise, 15 dB": ("snr_db", Verdict.WARN, lambda x, i: with_noise(x, 15, i)),
    "pink noise, 15 dB": ("snr_db", Verdict.WARN, lambda x, i: with_noise(x, 15, i, pink=True)),
    "white noise, 5 dB": ("snr_db", Verdict.REFUSE, lambda x, i: with_noise(x, 0, i)),
    "pink noise, 5 dB": ("snr_db", Verdict.REFUSE, lambda x, i: with_noise(x, 5, i, pink=True)),
    "0.2 % clipped": ("clipped", Verdict.WARN, lambda x, i: clipped(x, 0.002)),
    "1 % clipped": ("clipped", Verdict.WARN, lambda x, i: clipped(x, 0.01)),
    "5 % clipped": ("clipped", Verdict.REFUSE, lambda x, i: clipped(x, 0.05)),
    "room of 0.5 s, 0 dB": ("decay_s", Verdict.WARN, lambda x, i: in_a_room(x, 0.5, 0, i)),
    "room of 1 s, 0 dB": ("decay_s", Verdict.WARN, lambda x, i: in_a_room(x, 1.0, 0, i)),
    "nothing above 5.5 kHz": ("bandwidth_hz", Verdict.WARN, lambda x, i: lowpassed(x, 5500)),
    "nothing above 3.4 kHz": ("bandwidth_hz", Verdict.WARN, lambda x, i: lowpassed(x, 3400)),
    "nothing above 2.5 kHz": ("bandwidth_hz", Verdict.REFUSE, lambda x, i: lowpassed(x, 2500)),
    "1 s of speech": (
        "speech_s",
        Verdict.REFUSE,
        lambda x, i: np.concatenate([x[: RATE * 5 // 4], np.zeros(3 * RATE, np.float32)]),
    ),
}


@pytest.mark.parametrize("defect", list(DEFECTS))
def test_defects_are_found(defect: str) -> None:
    name, verdict, spoil = DEFECTS[defect]
    measure, bounds = MEASURES[name]
    values = [measure(spoil(samples, index)) for index, samples in enumerate(clean())]
    assert share(values, bounds, verdict) >= 0.9, sorted(values)


@pytest.mark.parametrize("name", ["snr_db", "clipped", "decay_s", "bandwidth_hz"])
def test_clean_recordings_are_not_blamed(name: str) -> None:
    measure, bounds = MEASURES[name]
    values = [measure(samples) for samples in clean()]
    assert share(values, bounds, Verdict.WARN) <= 0.05, sorted(values)


def test_other_defects_do_not_look_like_echo() -> None:
    measure, bounds = MEASURES["decay_s"]
    noisy = [measure(with_noise(samples, 20, i)) for i, samples in enumerate(clean())]
    assert share(noisy, bounds, Verdict.WARN) <= 0.05, sorted(noisy)


@cache
def speakers() -> SpeakerEncoder:
    return SpeakerEncoder(nano_file("campplus.onnx"))


def speech(samples: Samples, seconds: float) -> Samples:
    audio = DecodedAudio(samples, RATE)
    return speech_samples(Heard.of(audio))[: int(seconds * 16_000)]


def test_a_second_voice_is_found_and_one_voice_is_not_blamed() -> None:
    voices = [speech(samples, 4.0) for samples in clean()]
    whole = np.stack([speakers().embedding(voice) for voice in voices])
    whole /= np.linalg.norm(whole, axis=1, keepdims=True)
    alike = whole @ whole.T
    random = np.random.default_rng(3)
    order = [tuple(random.permutation(len(voices))[:2]) for _ in range(200)]
    # Two warps of one voice may come out alike; those two are no test of telling voices apart.
    pairs = [(a, b) for a, b in order if alike[a, b] < 0.3][:20]
    assert len(pairs) == 20
    bounds = BOUNDS.speaker_similarity
    two = [speaker_similarity(np.concatenate([voices[a], voices[b]]), speakers()) for a, b in pairs]
    assert share(two, bounds, Verdict.WARN) >= 0.9, sorted(two)
    one = [speaker_similarity(speech(samples, 8.0), speakers()) for samples in clean()]
    assert share(one, bounds, Verdict.WARN) <= 0.05, sorted(one)


def report(samples: Samples) -> QualityReport:
    encoder = SpeakerEncoder(golden.model_dir(3) / "campplus.onnx")
    # The tiny encoder has random weights: its similarities say nothing about people.
    anyone = Bounds(warn=-1.0, refuse=None, higher_is_better=True)
    bounds = QualityThresholds(speaker_similarity=anyone)
    return assess(Heard.of(DecodedAudio(samples, RATE)), encoder, bounds)


def test_a_report_says_what_is_wrong_in_words_and_figures() -> None:
    good = report(clean()[-1])
    assert good.verdict is Verdict.GOOD
    assert good.messages == []
    assert set(good.figures) == {
        "speech_s",
        "snr_db",
        "clipped_percent",
        "decay_s",
        "bandwidth_hz",
        "speaker_similarity",
    }
    bad = report(clipped(with_noise(clean()[-1], 4, 0), 0.005))
    assert bad.verdict is Verdict.REFUSE
    assert "quieter" in bad.messages[0]
    assert any("overdriven" in message for message in bad.messages[1:])
    assert bad.finding("snr_db").verdict is Verdict.REFUSE


def test_silence_at_the_ends_goes_and_the_level_is_set() -> None:
    quiet = 0.05 * clean()[-1]
    padded = np.concatenate([np.zeros(2 * RATE, np.float32), quiet, np.zeros(RATE, np.float32)])
    heard = Heard.of(DecodedAudio(padded, RATE))
    trimmed = trim_silence(heard)
    assert abs(len(trimmed.samples) - len(quiet)) <= 0.6 * RATE
    assert float(np.sum(trimmed.samples**2)) >= 0.9999 * float(np.sum(padded**2))
    spoken = speech_samples(heard)
    loud = set_level(trimmed, spoken)
    gain = float(np.abs(loud.samples).max() / np.abs(trimmed.samples).max())
    level = 10 * np.log10(np.mean(np.square(spoken * gain, dtype=np.float64)))
    assert level == pytest.approx(-23, abs=0.1) or np.abs(loud.samples).max() <= 0.8001
    peaky = set_level(DecodedAudio(np.array([0.5, *[0.001] * 999], np.float32), RATE), spoken)
    assert np.abs(peaky.samples).max() <= 0.8001


@pytest.mark.slow
def test_predicted_scores_tell_artefacts_and_noise_from_speech() -> None:
    score = dnsmos()
    if score is None:
        pytest.skip("speechmos is not installed")
    bounds = BOUNDS.opinion_score
    recordings = clean()[-12:]
    good = [score(resample(x, RATE, 16_000)) for x in recordings]
    # One in twelve would be more than 5 % already; `bench.report_quality` has more of them.
    assert share(good, bounds, Verdict.WARN) <= 0.05, sorted(good)
    for spoil in (robotic, lambda x, i: with_noise(x, 5, i, pink=True)):
        poor = [score(resample(spoil(x, i), RATE, 16_000)) for i, x in enumerate(recordings)]
        assert share(poor, bounds, Verdict.WARN) >= 0.9, sorted(poor)


def test_opinion_windows_are_spread_and_bounded() -> None:
    size = round(9.01 * 16_000)
    for seconds, count in ((3, 1), (9.01, 1), (18.5, 2), (30, 3), (300, 3)):
        ramp = np.arange(round(seconds * 16_000), dtype=np.float32)
        windows = opinion_windows(ramp)
        assert [len(window) for window in windows] == [size] * count
        if seconds > 9.01:
            assert windows[0][0] == 0
            assert count == 1 or windows[-1][-1] == ramp[-1]
