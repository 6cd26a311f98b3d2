"""The page makes a voice of a recording, shows what it is worth, and speaks with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client_demo.chromium import Tab, needs_chromium, tab
from tests.server.voices.recording import TRANSCRIPT, learning, recording


async def fill(page: Tab, path: Path | None) -> None:
    await page.page.fill("[name=name]", "ada")
    await page.page.fill("[name=consent_by]", "Ada Example")
    await page.page.fill("[name=consent_until]", "2999-12-31")
    await page.page.fill("[name=transcript]", TRANSCRIPT)
    await page.page.check("#agreed")
    if path is not None:
        await page.page.set_input_files("[name=audio]", str(path))


@needs_chromium
async def test_a_file_becomes_a_voice_that_speaks(tmp_path: Path) -> None:
    path = tmp_path / "ada.wav"
    path.write_bytes(recording())
    async with learning(tmp_path / "voices") as server, tab(server) as page:
        said = "document.getElementById('enrolled').textContent"
        await fill(page, None)
        await page.page.click("#enrol [type=submit]")
        await page.until(f"{said}.startsWith('Record something')")
        await fill(page, path)
        await page.page.click("#enrol [type=submit]")
        await page.until(f"{said} === 'ada can speak now.'", 60)
        assert await page.page.evaluate("document.querySelectorAll('#report li').length") > 3
        await page.until("document.getElementById('voice').value.endsWith('/ada')")
        state = await page.speak("one two")
        assert state["started"]["voice"] == "ada"
        assert state["played"] > 0.1
        # The same name again is refused in the server's own words.
        await page.page.click("#enrol [type=submit]")
        await page.until(f"{said}.includes('There is a voice ada already')", 60)


@pytest.mark.slow
@needs_chromium
async def test_a_microphone_records(tmp_path: Path) -> None:
    path = tmp_path / "ada.wav"
    path.write_bytes(recording())
    microphone = (
        "--use-fake-ui-for-media-stream",
        "--use-fake-device-for-media-stream",
        f"--use-file-for-fake-audio-capture={path}",
    )
    async with learning(tmp_path / "voices") as server, tab(server, *microphone) as page:
        said = "document.getElementById('enrolled').textContent"
        await fill(page, None)
        await page.page.click("#record")
        await page.until(f"{said}.startsWith('Recording')")
        await page.page.wait_for_timeout(6000)
        await page.page.click("#record")
        await page.until(f"{said} === 'Recorded.'")
        await page.page.click("#enrol [type=submit]")
        await page.until("document.querySelectorAll('#report li').length > 3", 60)
