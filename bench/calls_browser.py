"""What Chromium's jitter buffer makes of a call: one minute of speech, pauses and barge-ins.

Prints Chromium's own statistics: samples it had to invent, the delay it chose, how much it sped up
or slowed down; after how long an interrupted turn was no longer heard, and no longer came from the
server, at the longest; and how late the server sent its packets. The speech was made beforehand, so
that nothing but the call is measured. The first second, in which the connection settles, is not
counted. Needs Chromium and `playwright`.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import time
from typing import Any

from bench.calls import listing
from bench.calls_server import ServerProcess, server_process
from bench.report import Row, publish, switches

TEXT = (
    "Thank you for calling. I can see your order here, and it should arrive tomorrow morning. "
    "Is there anything else that I can do for you today?"
)
FLAGS = (
    "--no-sandbox",
    # No screen: its drawing would take the cores from the call.
    "--disable-gpu",
    "--autoplay-policy=no-user-gesture-required",
    "--disable-background-networking",
    "--allow-loopback-in-peer-connection",
    "--disable-features=WebRtcHideLocalIpsWithMdns",
)


async def watch(server: ServerProcess, seconds: float) -> Row:
    """Speak, pause, interrupt, and read the statistics at both ends of that time."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("chromium-browser")
        browser = await playwright.chromium.launch(executable_path=path, args=[*FLAGS])
        page = await browser.new_page()
        await page.goto(server.url + "/")
        await page.select_option("#transport", "call")
        await _turn(page, "Hello there.", None)
        before = await _stats(page)
        (call,) = await listing(server)
        late = call["late_frames"]
        ends = time.monotonic() + seconds
        barge_ins = turns = 0
        stopped_ms = silent_ms = 0.0
        while time.monotonic() < ends:
            interrupt = 1.5 if turns % 3 == 2 else None
            await _turn(page, TEXT, interrupt)
            turns += 1
            if interrupt is not None:
                barge_ins += 1
                await _until(page, "window.antiphon.silentMs !== null")
                stopped = await page.evaluate("window.antiphon.interruptedMs")
                silent = await page.evaluate("window.antiphon.silentMs")
                stopped_ms, silent_ms = max(stopped_ms, stopped), max(silent_ms, silent)
            await asyncio.sleep(1.0)
        after = await _stats(page)
        (call,) = await listing(server)
        await browser.close()
    return {
        "turns": turns,
        "barge-ins": barge_ins,
        "stopped after ms": stopped_ms,
        "server silent after ms": silent_ms,
        "late frames": call["late_frames"] - late,
        "underruns": call["underruns"],
        **_grown(before, after),
    }


async def _turn(page: Any, text: str, interrupt_after_s: float | None) -> None:
    turns = await page.evaluate("window.antiphon.turns")
    await page.fill("#text", text)
    await page.click("#speak")
    if interrupt_after_s is not None:
        await _until(page, f"antiphon.speaking && antiphon.played > {interrupt_after_s}")
        await page.keyboard.press("Escape")
    await _until(page, f"window.antiphon.turns > {turns}")


async def _until(page: Any, condition: str) -> None:
    async with asyncio.timeout(120):
        while not await page.evaluate(condition):  # noqa: ASYNC110 - the page's state
            await asyncio.sleep(0.05)


async def _stats(page: Any) -> dict[str, float]:
    await asyncio.sleep(1.0)
    report: dict[str, float] = await page.evaluate("window.antiphon.stats()")
    return report


def _grown(before: dict[str, float], after: dict[str, float]) -> Row:
    def grown(name: str) -> float:
        return after[name] - before[name]

    emitted, received = grown("jitterBufferEmittedCount"), grown("totalSamplesReceived")
    return {
        "seconds": received / 48_000,
        "concealed samples": int(grown("concealedSamples")),
        "mean delay ms": 1000 * grown("jitterBufferDelay") / emitted,
        "target delay ms": 1000 * grown("jitterBufferTargetDelay") / emitted,
        "sped up %": 100 * grown("removedSamplesForAcceleration") / received,
        "slowed down %": 100 * grown("insertedSamplesForDeceleration") / received,
    }


async def measure(arguments: argparse.Namespace) -> list[Row]:
    """One call."""
    with server_process("premade", TEXT) as server:
        return [await watch(server, 10 if arguments.quick else 60)]


def main() -> None:
    """Measure and publish."""
    arguments = switches(__doc__.splitlines()[0]).parse_args()
    publish(arguments, "A call in Chromium", asyncio.run(measure(arguments)))


if __name__ == "__main__":
    main()
