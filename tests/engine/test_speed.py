"""Faster and slower speech keeps its pitch (nano, which speaks; random weights do not)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from antiphon.engine.cosyvoice import CosyVoiceEngine
from antiphon.engine.interface import SpeechAudio, SpeechFinished, SpeechProgress, SpeechRequest
from antiphon.engine.watermark.none import NoWatermark

NANO = Path(__file__).parents[3] / "shared" / "nano"
TEXT = "Good morning. The meeting starts at nine, and we will walk along the river."
RATE = 24_000
FRAME, HOP = 960, 480


def median_pitch_hz(samples: NDArray[np.float32]) -> float:
    """Median F0 of voiced frames, by the peak of the normalised autocorrelation."""
    found = []
    for start in range(0, len(samples) - 2 * FRAME, HOP):
        frame = samples[start : start + 2 * FRAME].astype(np.float64)
        frame -= frame.mean()
        power = float(frame @ frame)
        if power < 2 * FRAME * 1e-4:
            continue
        spectrum = np.fft.rfft(frame, 4 * FRAME)
        correlation = np.fft.irfft(spectrum * spectrum.conj())[:FRAME] / power
        lags = slice(RATE // 400, RATE // 70)
        best = int(correlation[lags].argmax()) + lags.start
        if correlation[best] > 0.5:
            found.append(RATE / best)
    assert len(found) > 20, "not enough voiced speech to measure"
    return float(np.median(found))


@pytest.mark.skipif(not NANO.is_dir(), reason="the nano checkpoint is not beside the checkout")
async def test_the_pitch_stays_while_the_length_follows_the_speed() -> None:
    engine = CosyVoiceEngine.load(NANO, NoWatermark())
    pitch, seconds = {}, {}
    try:
        for speed in (0.75, 1.0, 1.4):
            session = await engine.open_session(SpeechRequest("bruno", speed=speed, seed=4))
            await session.push_text(TEXT)
            await session.end_text()
            events = [event async for event in session.events()]
            audio = [event.audio.samples for event in events if isinstance(event, SpeechAudio)]
            samples = np.concatenate(audio)
            end = events[-1]
            assert isinstance(end, SpeechFinished)
            assert end.samples == len(samples) == 480 * int(2 * end.speech_tokens / speed)
            told = [event for event in events if isinstance(event, SpeechProgress)]
            assert told[-1].end_s == pytest.approx(len(samples) / RATE, abs=0.021)
            pitch[speed], seconds[speed] = median_pitch_hz(samples), len(samples) / RATE
    finally:
        await engine.close()
    for speed in (0.75, 1.4):
        assert seconds[speed] == pytest.approx(seconds[1.0] / speed, rel=0.01)
        assert pitch[speed] == pytest.approx(pitch[1.0], rel=0.04)
