"""The page with real speech: pictures for the README.

`ANTIPHON_PICTURES=docs/pictures pytest -m slow tests/client_demo/test_pictures.py` renews the
pictures in the repository.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.client_demo.chromium import needs_chromium, tab
from tests.client_demo.speaking import recording, speaking_server

TEXT = (
    "Text goes in while it is being written, and speech comes out while it is being heard. "
    "You can interrupt me at any moment, and I will stop within a twentieth of a second. "
    "Every sample that leaves this server carries a watermark that nobody hears."
)


def picture(tmp_path: Path, name: str) -> str:
    return str(Path(os.environ.get("ANTIPHON_PICTURES", tmp_path)) / name)


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
        await page.until("window.antiphon.speaking && window.antiphon.played > 6", 60)
        await page.page.screenshot(path=picture(tmp_path, name))
        state = await page.state()
        assert state["speaking"]
        assert state["gaps"] <= 1
        assert state["firstSoundMs"] < 3000
        assert page.errors == []
