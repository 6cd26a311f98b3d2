"""A server that speaks with the preset voice and the real watermark, and files of its speech."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np

from antiphon.engine.interface import SpeechAudio, SpeechRequest
from antiphon.engine.preset.engine import PresetEngine
from antiphon.server.audio.plain import wav_header
from antiphon.server.audio.samples import to_pcm
from antiphon.server.config import WatermarkSection
from antiphon.server.loading import load_watermark
from tests.server.harness import Running, serving


@asynccontextmanager
async def speaking_server() -> AsyncIterator[Running]:
    mark = load_watermark(WatermarkSection(name="perth"))
    async with serving(
        {"watermark.name": "perth"}, engine=PresetEngine(mark), watermark=mark, voice="heart"
    ) as server:
        yield server


async def recording(server: Running, text: str, path: Path, pause_s: float = 0.0) -> Path:
    """Marked speech as a file, after a pause."""
    session = await server.engine.open_session(SpeechRequest("heart"))
    await session.push_text(text)
    await session.end_text()
    parts = [
        event.audio.samples async for event in session.events() if isinstance(event, SpeechAudio)
    ]
    silence = np.zeros(round(pause_s * 24000), dtype=np.float32)
    pcm = to_pcm(np.concatenate([silence, *parts, silence]))
    await asyncio.to_thread(path.write_bytes, wav_header(24000, len(pcm)) + pcm)
    return path
