"""What computing costs the event loop: the acoustic engine in a thread or in another process.

Sessions speak without pause while a task on the loop asks to be woken every millisecond; its delay
is the loop's lag. Measured: an idle loop; the engine's worker thread with the interpreter's default
switch interval and a short one; the same work in another process, where only the cores are shared.
Audio seconds made per second say what each costs.

    python -m bench.loop_lag --model DIR --json lag.json --plot lag.png
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from antiphon.engine.acoustic.interface import AcousticSettings
from antiphon.engine.acoustic.loader import load_acoustic_engine
from antiphon.engine.checkpoint import open_checkpoint
from bench.acoustic_lab import model_switch, open_model, speech_codes, voices
from bench.report import publish, switches

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PERIOD_S = 0.001
SHORT_SWITCH_S = 0.0005


@dataclass(frozen=True)
class Lag:
    """One way of running."""

    name: str
    delays_ms: list[float]
    audio_rate: float
    """Seconds of audio made per second; 0 where nothing was made."""


async def _speak_for(directory: Path, seconds: float, sessions: int) -> float:
    """Speak with all sessions at once until the time is over; returns seconds of audio made."""
    checkpoint = open_checkpoint(directory)
    engine = load_acoustic_engine(checkpoint)
    prompt, codes = voices(checkpoint)[0], speech_codes(checkpoint, 25)
    end = time.monotonic() + seconds
    made = 0

    async def session() -> None:
        nonlocal made
        stream = await engine.open(prompt, AcousticSettings())
        while time.monotonic() < end:
            made += len((await stream.speak(codes, final=False)).samples)
        stream.close()

    await asyncio.gather(*(session() for _ in range(sessions)))
    await engine.close()
    return made / engine.sample_rate


async def _watched(
    work: Callable[[], Awaitable[float]], skip_s: float
) -> tuple[list[float], float]:
    """Run something and note how late the loop wakes a task meanwhile."""
    delays: list[float] = []
    started = time.monotonic()

    async def watch() -> None:
        while True:
            asked = time.perf_counter()
            await asyncio.sleep(PERIOD_S)
            if time.monotonic() - started > skip_s:
                delays.append(1000 * (time.perf_counter() - asked - PERIOD_S))

    watcher = asyncio.ensure_future(watch())
    made = await work()
    watcher.cancel()
    return delays, made


def _in_process(directory: Path, seconds: float, sessions: int, result: object) -> None:
    made = asyncio.run(_speak_for(directory, seconds, sessions))
    result.put(made)  # type: ignore[attr-defined]


def measure(directory: Path, seconds: float, sessions: int) -> list[Lag]:
    """All ways of running, one after the other."""
    warm_up = 0.3 * seconds
    lags = []

    def add(name: str, work: Callable[[], Awaitable[float]]) -> None:
        delays, made = asyncio.run(_watched(work, warm_up))
        lags.append(Lag(name, delays, made / seconds))

    async def idle() -> float:
        await asyncio.sleep(seconds)
        return 0.0

    async def threaded() -> float:
        return await _speak_for(directory, seconds, sessions)

    async def separate() -> float:
        context = multiprocessing.get_context("spawn")
        result = context.Queue()
        process = context.Process(target=_in_process, args=(directory, seconds, sessions, result))
        process.start()
        made = await asyncio.to_thread(result.get)
        process.join()
        return float(made)

    add("idle loop", idle)
    add("thread, default switch", threaded)
    before = sys.getswitchinterval()
    sys.setswitchinterval(SHORT_SWITCH_S)
    add("thread, 0.5 ms switch", threaded)
    sys.setswitchinterval(before)
    add("separate process", separate)
    return lags


def row(lag: Lag) -> dict[str, str | float]:
    """One line of the table."""
    p50, p99 = np.percentile(lag.delays_ms, [50, 99])
    return {
        "engine in": lag.name,
        "lag p50, ms": float(p50),
        "p99, ms": float(p99),
        "max, ms": max(lag.delays_ms),
        "audio s/s": lag.audio_rate,
    }


def draw(axes: Axes, lags: list[Lag]) -> None:
    """Distribution of the lag."""
    for lag in lags:
        ordered = np.sort(lag.delays_ms)
        axes.plot(ordered, np.linspace(0, 1, len(ordered)), label=lag.name)
    axes.set_xscale("symlog", linthresh=0.1)
    axes.set_xlabel("lag of the event loop, ms")
    axes.set_ylabel("share of wake-ups")
    axes.legend()


def main() -> None:
    parser = switches(__doc__ or "")
    model_switch(parser)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--sessions", type=int, default=2)
    arguments: argparse.Namespace = parser.parse_args()
    directory = open_model(arguments).directory
    seconds = 4.0 if arguments.quick else arguments.seconds
    lags = measure(directory, seconds, arguments.sessions)
    publish(
        arguments,
        "Lag of the event loop while the acoustic engine computes",
        [row(lag) for lag in lags],
        draw=lambda axes: draw(axes, lags),
    )


if __name__ == "__main__":
    main()
