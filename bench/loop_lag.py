"""What computing costs the event loop: the acoustic engine in a thread or in another process.

Sessions speak without pause while a task on the loop asks to be woken every millisecond; its delay
is the loop's lag. Measured: an idle loop; the engine's worker thread with the interpreter's default
switch interval and a short one; the engine in its own process (`own_process`). Each alone and
beside the speech LM's thread, which makes tokens without pause as it does in a server: both threads
then ask for one interpreter lock. Audio seconds made per second say what each costs.

    python -m bench.loop_lag --model DIR --json lag.json --plot lag.png
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from antiphon.engine.acoustic.interface import CHUNK_TOKENS, AcousticSettings
from antiphon.engine.acoustic.loader import load_acoustic_engine
from antiphon.engine.acoustic.settings import EngineSettings
from antiphon.engine.checkpoint import Checkpoint
from antiphon.engine.prompts import PromptMaker
from antiphon.engine.speech_lm.request import Sampling, SpeechLMRequest
from antiphon.engine.speech_lm.torch_backend import TorchSpeechLM
from bench.acoustic_lab import model_switch, open_model, speech_codes, voices
from bench.report import publish, switches

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PERIOD_S = 0.001
SHORT_SWITCH_S = 0.0005
TEXT_IDS = tuple(range(10, 60))
"""Any text: what is said does not matter here."""


@dataclass(frozen=True, slots=True)
class Work:
    """What runs while the loop is watched."""

    seconds: float
    sessions: int
    with_lm: bool


@dataclass(frozen=True)
class Lag:
    """One way of running."""

    name: str
    beside_lm: str
    delays_ms: list[float]
    audio_rate: float
    """Seconds of audio made per second; 0 where nothing was made."""


async def _speak_for(
    checkpoint: Checkpoint, settings: EngineSettings, work: Work
) -> tuple[list[float], float]:
    """Speak with all sessions at once until the time is over.

    Returns how late the loop woke meanwhile and the seconds of audio made per second.
    """
    engine = load_acoustic_engine(checkpoint, settings)
    lm = TorchSpeechLM.load(checkpoint, slots=1, positions=512) if work.with_lm else None
    prompts = PromptMaker(checkpoint)
    lm_prompt = prompts.fit(prompts.stored(next(iter(checkpoint.voices.values())))).prompt
    prompt, codes = voices(checkpoint)[0], speech_codes(checkpoint, CHUNK_TOKENS)
    await engine.warm_voice(prompt, AcousticSettings())
    end = time.monotonic() + work.seconds
    samples = 0

    async def session() -> None:
        nonlocal samples
        stream = await engine.open(prompt, AcousticSettings())
        while time.monotonic() < end:
            samples += len((await stream.speak(codes, final=False)).samples)
        stream.close()

    async def tokens(lm: TorchSpeechLM) -> None:
        number = 0
        while time.monotonic() < end:
            sampling = Sampling(0.8, 25, 10, 0.8, seed=number)
            number += 1
            async for _ in lm.generate(SpeechLMRequest(lm_prompt, TEXT_IDS, sampling)):
                if time.monotonic() >= end:
                    break

    sessions = [session() for _ in range(work.sessions)]
    busy = [*sessions, tokens(lm)] if lm else sessions
    delays = await _watched(asyncio.gather(*busy))
    await engine.close()
    if lm is not None:
        await lm.close()
    return delays, samples / engine.sample_rate / work.seconds


async def _watched(work: Awaitable[object]) -> list[float]:
    """Do something and note how late the loop wakes a task meanwhile, in milliseconds."""
    delays: list[float] = []

    async def watch() -> None:
        while True:
            asked = time.perf_counter()
            await asyncio.sleep(PERIOD_S)
            delays.append(1000 * (time.perf_counter() - asked - PERIOD_S))

    watcher = asyncio.ensure_future(watch())
    await work
    watcher.cancel()
    return delays


def measure(checkpoint: Checkpoint, seconds: float, sessions: int) -> list[Lag]:
    """All ways of running, one after the other."""
    lags = [Lag("nothing runs", "", asyncio.run(_watched(asyncio.sleep(seconds))), 0.0)]
    before = sys.getswitchinterval()
    for with_lm in (False, True):
        work = Work(seconds, sessions, with_lm)
        for name, own_process, switch_s in (
            ("thread, default switch", False, before),
            ("thread, 0.5 ms switch", False, SHORT_SWITCH_S),
            ("own process", True, before),
        ):
            sys.setswitchinterval(switch_s)
            settings = EngineSettings(own_process=own_process)
            delays, rate = asyncio.run(_speak_for(checkpoint, settings, work))
            lags.append(Lag(name, "yes" if with_lm else "no", delays, rate))
    sys.setswitchinterval(before)
    return lags


def row(lag: Lag) -> dict[str, str | float]:
    """One line of the table."""
    p50, p99 = np.percentile(lag.delays_ms, [50, 99])
    return {
        "engine in": lag.name,
        "LM beside": lag.beside_lm,
        "lag p50, ms": float(p50),
        "p99, ms": float(p99),
        "max, ms": max(lag.delays_ms),
        "audio s/s": lag.audio_rate,
    }


def draw(axes: Axes, lags: list[Lag]) -> None:
    """Distribution of the lag."""
    for lag in lags:
        ordered = np.sort(lag.delays_ms)
        label = lag.name + (" beside the LM" if lag.beside_lm == "yes" else "")
        axes.plot(ordered, np.linspace(0, 1, len(ordered)), label=label)
    axes.set_xscale("symlog", linthresh=0.1)
    axes.set_xlabel("lag of the event loop, ms")
    axes.set_ylabel("share of wake-ups")
    axes.legend()


def main(argv: list[str] | None = None) -> None:
    parser = switches(__doc__ or "")
    model_switch(parser)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--sessions", type=int, default=2)
    arguments: argparse.Namespace = parser.parse_args(argv)
    checkpoint = open_model(arguments)
    seconds = 1.0 if arguments.quick else arguments.seconds
    lags = measure(checkpoint, seconds, arguments.sessions)
    publish(
        arguments,
        "Lag of the event loop while the acoustic engine computes",
        [row(lag) for lag in lags],
        draw=lambda axes: draw(axes, lags),
    )


if __name__ == "__main__":
    main()
