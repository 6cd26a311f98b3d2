"""The page with real speech: pictures for the README, and an interruption by voice.

`ANTIPHON_PICTURES=docs/pictures pytest -m slow tests/client_demo/test_pictures.py` renews the
pictures in the repository.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from antiphon.engine.interface import SpeechAudio, SpeechRequest
from antiphon.engine.preset.engine import PresetEngine
from antiphon.server.audio.plain import wav_header
from antiphon.server.audio.samples import to_pcm
from antiphon.server.config import WatermarkSection
from antiphon.server.loading import load_watermark
from tests.client_demo.chromium import needs_chromium, tab
from tests.server.harness import Running, serving

TEXT = (
    "Text goes in while it is being written, and speech comes out while it is being heard. "
    "You can interrupt me at any moment, and I will stop within a twentieth of a second. "
    "Every sample that leaves this server carries a watermark that nobody hears."
)


@asynccontextmanager
async def speaking_server() -> AsyncIterator[Running]:
    mark = load_watermark(WatermarkSection(name="perth"))
    async with serving(
        {"watermark.name": "perth"}, engine=PresetEngine(mark), watermark=mark, voice="heart"
    ) as server:
        yield server


def picture(tmp_path: Path, name: str) -> str:
    return str(Path(os.environ.get("ANTIPHON_PICTURES", tmp_path)) / name)


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


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize(
    ("name", "width", "height", "scheme"),
    [
        ("page-light.png", 1280, 1100, "light"),
        ("page-dark.png", 1280, 1100, "dark"),
        ("page-phone.png", 390, 1480, "light"),
    ],
)
async def test_the_page_while_it_speaks(
    name: str, width: int, height: int, scheme: str, tmp_path: Path
) -> None:
    async with (
        speaking_server() as server,
        tab(server, width=width, height=height, color_scheme=scheme) as page,
    ):
        marked = await recording(
            server, "This recording carries the mark.", tmp_path / "made-here.wav"
        )
        await page.page.set_input_files("#file", str(marked))
        verdict = "document.getElementById('verdict').textContent"
        await page.until(f"{verdict}.includes('carries the watermark')", 60)
        await page.page.fill("#text", TEXT)
        await page.page.click("#speak")
        await page.until("window.antiphon.played > 6", 60)
        await page.page.screenshot(path=picture(tmp_path, name))
        state = await page.state()
        assert state["speaking"]
        assert state["gaps"] <= 1
        assert state["firstSoundMs"] < 3000
        assert page.errors == []


@pytest.mark.slow
@needs_chromium
async def test_a_voice_interrupts(tmp_path: Path) -> None:
    async with speaking_server() as server:
        voice = await recording(
            server, "Stop, please. I want to say something.", tmp_path / "voice.wav", pause_s=4.0
        )
        microphone = (
            "--use-fake-ui-for-media-stream",
            "--use-fake-device-for-media-stream",
            f"--use-file-for-fake-audio-capture={voice}%noloop",
        )
        async with tab(server, *microphone) as page:
            await page.page.select_option("#transport", "call")
            await page.page.check("#barge")
            await page.page.fill("#text", TEXT)
            await page.page.click("#speak")
            await page.until("window.antiphon.played > 0.5", 60)
            await page.until("window.antiphon.turns === 1", 60)
            dropped = "document.querySelectorAll('#words .dropped').length"
            assert await page.page.evaluate(dropped) > 0
            (call,) = server.calls.listing()
            assert call["caller_s"] > 1
            assert server.engine is not None
