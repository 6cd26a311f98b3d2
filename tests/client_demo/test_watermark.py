"""A file dropped on the page is checked for the mark: found where it is, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.server.audio.plain import wav_header
from antiphon.server.audio.samples import to_pcm
from tests.client_demo.chromium import needs_chromium, tab
from tests.client_demo.speaking import recording, speaking_server
from tests.server.harness import serving
from tests.server.tone_engine import speech

VERDICT = "document.getElementById('verdict').textContent"


@needs_chromium
async def test_files_of_others_and_files_that_hold_no_audio(tmp_path: Path) -> None:
    pcm = to_pcm(speech("low", "one two"))
    path = tmp_path / "stranger.wav"
    path.write_bytes(wav_header(24000, len(pcm)) + pcm)
    broken = tmp_path / "broken.wav"
    broken.write_bytes(b"not audio")
    async with serving() as server, tab(server) as page:
        await page.page.set_input_files("#file", str(path))
        await page.until(f"{VERDICT}.includes('carries no watermark')")
        await page.page.set_input_files("#file", str(broken))
        await page.until(f"{VERDICT}.includes('not audio')")


@pytest.mark.slow
@needs_chromium
async def test_our_own_speech_carries_the_mark_and_other_sound_does_not(tmp_path: Path) -> None:
    pcm = to_pcm(speech("low", "one two three four five six seven eight nine ten " * 2))
    stranger = tmp_path / "stranger.wav"
    stranger.write_bytes(wav_header(24000, len(pcm)) + pcm)
    async with speaking_server() as server, tab(server) as page:
        ours = await recording(
            server,
            "This recording carries the mark, which nobody hears and every copy keeps.",
            tmp_path / "ours.wav",
        )
        await page.page.set_input_files("#file", str(ours))
        await page.until(f"{VERDICT}.includes('carries the watermark')", 60)
        assert await page.page.is_visible("#spans")
        await page.page.set_input_files("#file", str(stranger))
        await page.until(f"{VERDICT}.includes('carries no watermark')", 60)
        assert not await page.page.is_visible("#spans")
        assert page.errors == []
