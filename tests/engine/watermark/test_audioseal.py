"""AudioSeal's adapter on random weights in the official form: all but the quality of the mark."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from antiphon.engine.errors import WatermarkUnavailable
from antiphon.engine.watermark.audioseal import AudioSealWatermark, _mark_of
from antiphon.engine.watermark.marked import FloatSamples
from bench.audioseal_weights import write_random
from tests.engine.watermark.speech import RATE_HZ, marked, speech

pytestmark = pytest.mark.skipif(
    find_spec("audioseal") is None, reason="the optional package audioseal is not installed"
)

SHORT = RATE_HZ // 2


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random(tmp_path_factory.mktemp("audioseal"))


@pytest.fixture(scope="module")
def watermark(weights: Path) -> AudioSealWatermark:
    return AudioSealWatermark(weights, payload=0xBEEF)


@pytest.fixture(scope="module")
def whole(watermark: AudioSealWatermark) -> FloatSamples:
    return marked(watermark, speech()[:SHORT], [SHORT], RATE_HZ)


@pytest.mark.parametrize("sizes", [[480], [1, 7000], [997, 13, 4000], [2400]])
def test_streamed_equals_whole(
    watermark: AudioSealWatermark, whole: FloatSamples, sizes: list[int]
) -> None:
    streamed = marked(watermark, speech()[:SHORT], sizes, RATE_HZ)
    assert len(streamed) == len(whole) == SHORT
    assert np.abs(streamed - whole).max() < 1e-5


def test_the_mark_is_the_networks_own(watermark: AudioSealWatermark) -> None:
    # At the network's rate nothing is resampled but by a filter without delay.
    samples = speech()[:8000]
    with torch.inference_mode():
        direct = _mark_of(
            watermark._generator, torch.from_numpy(samples)[None, None], watermark._message
        )[0, 0].numpy()
    added = marked(watermark, samples, [800], 16000) - samples
    loud = np.abs(samples) > 1e-3
    assert loud.sum() > 1000
    assert np.corrcoef(added[loud], direct[loud])[0, 1] > 0.95


def test_two_sessions_do_not_hear_each_other(
    watermark: AudioSealWatermark, whole: FloatSamples
) -> None:
    one, other = watermark.stream(RATE_HZ), watermark.stream(RATE_HZ)
    parts = []
    for start in range(0, SHORT, 2000):
        parts.append(one.push(speech()[start : min(start + 2000, SHORT)]).samples)
        other.push(-speech()[start + 5 : start + 777])
    parts.append(one.finish().samples)
    assert np.abs(np.concatenate(parts) - whole).max() < 1e-5


def test_silence_stays_silent(watermark: AudioSealWatermark) -> None:
    assert not marked(watermark, np.zeros(4800, np.float32), [480], RATE_HZ).any()


def test_the_payload_changes_the_mark(weights: Path, whole: FloatSamples) -> None:
    other = AudioSealWatermark(weights, payload=1)
    assert np.abs(marked(other, speech()[:SHORT], [SHORT], RATE_HZ) - whole).max() > 1e-4


def test_detection_reads_score_and_payload(
    watermark: AudioSealWatermark, whole: FloatSamples
) -> None:
    found = watermark.detect(whole, RATE_HZ)
    assert 0 <= found.score <= 1
    assert 0 <= watermark.payload(whole, RATE_HZ) < 1 << 16


def test_a_detector_that_is_not_there_is_named(weights: Path, tmp_path: Path) -> None:
    alone = tmp_path / "generator_streaming.pth"
    alone.write_bytes(weights.read_bytes())
    with pytest.raises(WatermarkUnavailable, match="detector"):
        AudioSealWatermark(alone).detect(speech()[:4800], RATE_HZ)


def test_other_files_are_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "generator.pth"
    with pytest.raises(WatermarkUnavailable, match=r"generator\.pth"):
        AudioSealWatermark(wrong)
    torch.save({"model": {"x": torch.zeros(1)}}, wrong)
    with pytest.raises(WatermarkUnavailable, match=r"generator\.pth"):
        AudioSealWatermark(wrong)
