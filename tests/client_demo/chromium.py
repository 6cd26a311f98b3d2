"""Headless Chromium on the page; tests that use it are skipped where there is none."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.server.harness import PATIENCE_S, Running

if TYPE_CHECKING:
    from playwright.async_api import Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--no-sandbox",
    "--autoplay-policy=no-user-gesture-required",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    # Loopback candidates, by their addresses: the tests have no other network.
    "--allow-loopback-in-peer-connection",
    "--disable-features=WebRtcHideLocalIpsWithMdns",
)

needs_chromium = pytest.mark.skipif(
    CHROMIUM is None or importlib.util.find_spec("playwright") is None,
    reason="Chromium or playwright is not installed",
)


class Tab:
    """The page, with what it said about itself (`window.antiphon` in main.js)."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._console)

    def _console(self, message: Any) -> None:
        if message.type == "error" or "Content Security Policy" in message.text:
            self.errors.append(message.text)

    async def until(self, condition: str, seconds: float = PATIENCE_S) -> None:
        """Wait for a JavaScript expression. (Playwright's own way needs `eval`, which the page's
        security policy forbids.)"""
        async with asyncio.timeout(seconds):
            while not await self.page.evaluate(condition):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def state(self) -> dict[str, Any]:
        """What the page says of the present or last turn."""
        found: dict[str, Any] = await self.page.evaluate(
            "({...window.antiphon, call: null, stats: null, sound: null})"
        )
        return found

    async def speak(self, text: str) -> dict[str, Any]:
        """A whole turn."""
        turns = (await self.state())["turns"]
        await self.page.fill("#text", text)
        await self.page.click("#speak")
        await self.until(f"window.antiphon.turns > {turns}")
        return await self.state()


@asynccontextmanager
async def tab(
    server: Running,
    *flags: str,
    width: int = 1280,
    height: int = 860,
    ready: str = "Ready",
    **context: Any,
) -> AsyncIterator[Tab]:
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS, *flags])
        try:
            page = await browser.new_page(viewport={"width": width, "height": height}, **context)
            opened = Tab(page)
            await page.goto(server.url + "/")
            await opened.until(f"document.getElementById('status').textContent === '{ready}'")
            yield opened
        finally:
            await browser.close()
