"""The speech gate of the preset voice: what Whisper hears of it, streamed in pieces and marked."""

from __future__ import annotations

import numpy as np
import pytest

from antiphon.engine.interface import SpeechAudio, SpeechRequest
from antiphon.engine.preset import PresetEngine
from antiphon.engine.watermark.perth import PerthWatermark
from bench.asr import transcribe, word_error_rate
from tests.sentences import HELD_OUT, OWN

RATE_HZ = 24000


@pytest.mark.slow
async def test_the_preset_voice_is_understood_and_marked() -> None:
    watermark = PerthWatermark()
    engine = PresetEngine(watermark)
    heard = []
    for seed, text in enumerate(HELD_OUT + OWN):
        session = await engine.open_session(SpeechRequest("heart", seed=seed))
        for start in range(0, len(text), 6):
            await session.push_text(text[start : start + 6])
        await session.end_text()
        audio = [e.audio.samples async for e in session.events() if isinstance(e, SpeechAudio)]
        samples = np.concatenate(audio)
        assert watermark.detect(samples, RATE_HZ).marked, text
        heard.append((text, transcribe(samples, RATE_HZ, beam=5)))
    await engine.close()
    assert word_error_rate(heard) <= 0.05
