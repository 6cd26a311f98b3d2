"""Tokens per second and waiting times of the speech LM: torch, vLLM, with and without its parts.

Speaks the same sentences at growing concurrency through each backend, then measures on vLLM how
soon a voice whose prompt is cached speaks, and the time from the text that completes a block to the
next speech token, with one streamed request and with a new request for each block.

    python -m bench.speech_lm --model DIR --json lm.json --plot lm.png
    python -m bench.speech_lm --size full  # vLLM at the published size
    python -m bench.speech_lm --model DIR --only prefix
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from antiphon.engine.errors import InvalidConfiguration
from antiphon.engine.speech_lm.layout import End
from antiphon.engine.speech_lm.request import SpeechLM, SpeechLMRequest
from antiphon.engine.speech_lm.text_feed import TextFeed
from antiphon.engine.speech_lm.torch_backend import TorchSpeechLM
from antiphon.engine.speech_lm.vllm_backend import VLLMSpeechLM
from antiphon.engine.speech_lm.vllm_export import export
from antiphon.engine.speech_lm.vllm_run import Run
from antiphon.engine.speech_lm.vllm_settings import VLLMSettings, installed_version
from bench.lm_bound import bandwidth, bound_rows
from bench.lm_prefix import plain_reuse, prefix_reuse
from bench.lm_subject import Subject
from bench.report import Row, print_table, publish, switches

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PROMPTS = {"nano": (7, 8, 10, 12, 16, 24, 48), "full": (7, 9, 12)}
"""Blocks of text and speech, 20 ids each, in the voice prompts of the cache measurement."""
REPETITIONS = {"nano": 20, "full": 4}
POSITIONS = 1024
QUIET_S = 0.5
"""A block of text counts as spoken when no token came for so long."""


@dataclass(frozen=True)
class Speed:
    """One backend at one concurrency."""

    name: str
    concurrency: int
    tokens_per_s: float
    first_ms: float
    gap_ms: float
    gap_p95_ms: float

    def row(self) -> Row:
        return {
            "backend": self.name,
            "sessions": self.concurrency,
            "tokens/s": self.tokens_per_s,
            "first token ms": self.first_ms,
            "between tokens ms": self.gap_ms,
            "p95 ms": self.gap_p95_ms,
        }


async def measure(name: str, lm: SpeechLM, requests: Sequence[SpeechLMRequest]) -> Speed:
    """Speak requests together and time their tokens."""
    firsts: list[float] = []
    gaps: list[float] = []
    count = 0

    async def speak(request: SpeechLMRequest) -> None:
        nonlocal count
        last = time.perf_counter()
        begun = False
        async for _ in lm.generate(request):
            now = time.perf_counter()
            (gaps if begun else firsts).append(now - last)
            last, begun = now, True
            count += 1

    start = time.perf_counter()
    await asyncio.gather(*(speak(request) for request in requests))
    took = time.perf_counter() - start
    return Speed(
        name,
        len(requests),
        count / took,
        1e3 * float(np.median(firsts)),
        1e3 * float(np.mean(gaps)),
        1e3 * float(np.percentile(gaps, 95)),
    )


async def ladder(
    name: str, lm: SpeechLM, subject: Subject, levels: Sequence[int], *, greedy: bool = False
) -> list[Speed]:
    """Measure one backend at growing concurrency, after a warm-up."""
    sampling = replace(subject.sampling, greedy=greedy)

    def requests(count: int) -> list[SpeechLMRequest]:
        found = [subject.request(seed) for seed in range(count)]
        return [replace(r, sampling=replace(sampling, seed=i)) for i, r in enumerate(found)]

    await measure(name, lm, requests(1))
    return [await measure(name, lm, requests(count)) for count in levels]


async def block_to_token(
    lm: VLLMSpeechLM, subject: Subject, blocks: int, *, growing: bool
) -> list[float]:
    """Return, in ms, how long after a block of text the next speech token came.

    The text comes block by block, each once the one before is spoken.
    """
    per_text = subject.checkpoint.lm_config.mix_ratio[0]
    given: list[float] = []
    came: list[float] = []
    last = 0.0

    async def text() -> AsyncIterator[Sequence[int]]:
        nonlocal last
        ids = subject.text(3, blocks * per_text)
        for at in range(0, len(ids), per_text):
            last = time.perf_counter()
            given.append(last)
            yield ids[at : at + per_text]
            # The block is spoken when nothing comes any more: a fill may end it early.
            while time.perf_counter() - last < QUIET_S:  # noqa: ASYNC110 (an absence has no event)
                await asyncio.sleep(QUIET_S / 4)
            if len(came) < len(given):
                given.pop()

    request = subject.request(3, text=text(), min_ratio=0.0)
    async for _ in grow(lm, request) if growing else lm.generate(request):
        last = time.perf_counter()
        if len(came) < len(given):
            came.append(last)
    return [1e3 * (b - a) for a, b in zip(given, came, strict=True)][1:]


async def grow(lm: VLLMSpeechLM, request: SpeechLMRequest) -> AsyncIterator[int]:
    """The other way to stream text into vLLM: each run is a new request of all ids so far."""
    sequence = lm.builder.build(request)
    feed = TextFeed(sequence, request.text, lm.builder.check_text)
    run = Run(lm, request, sequence, feed)
    engine = lm.engine.get()
    ids: list[int] = []
    try:
        while not isinstance(step := await run.next_sample(), End):
            prompt, params = run.begin(step)
            ids += prompt["prompt_token_ids"]
            outputs = engine.generate({"prompt_token_ids": list(ids)}, params, lm.next_id())
            sampled: list[int] = []
            async for output in outputs:
                for token in output.outputs[0].token_ids:
                    sampled.append(token)
                    heard = run.accept(token)
                    if heard is not None:
                        yield heard
            # The last one is fed by the next run, or, a fill or an end, not at all.
            ids += sampled[:-1]
    finally:
        await feed.close()


async def started(subject: Subject, settings: VLLMSettings) -> VLLMSpeechLM:
    """Export and start."""
    model = await asyncio.to_thread(export, subject.checkpoint, settings.weights, settings.cache)
    lm = VLLMSpeechLM(model, subject.builder, settings)
    await lm.start()
    return lm


async def on_vllm(
    subject: Subject, levels: Sequence[int], arguments: argparse.Namespace
) -> tuple[list[Speed], dict[str, Any]]:
    """Measure vLLM, once with and once without prefix caching."""
    speeds: list[Speed] = []
    details: dict[str, Any] = {"vllm": installed_version()}
    repetitions = 3 if arguments.quick else REPETITIONS[arguments.size]
    with tempfile.TemporaryDirectory() as cache:
        settings = VLLMSettings(
            cache=Path(cache),
            kv_gib=0.5,
            max_sequences=max(levels),
            max_positions=POSITIONS,
            block_size=arguments.block,
        )
        lm = await started(subject, settings)
        try:
            details["prefix"] = [
                await prefix_reuse(lm, subject, blocks, repetitions)
                for blocks in PROMPTS[arguments.size]
            ]
            details["plain"] = [await plain_reuse(lm, subject)]
            if arguments.only == "prefix":
                return speeds, details
            speeds += await ladder("vllm", lm, subject, levels)
            if arguments.size == "full":
                return speeds, details
            speeds += await ladder("vllm, greedy", lm, subject, levels, greedy=True)
            details["block to token"] = [
                await ways_to_stream(lm, subject, speeds[0].gap_ms, growing=growing)
                for growing in (False, True)
            ]
        finally:
            await lm.close()
        lm = await started(subject, replace(settings, prefix_caching=False))
        try:
            speeds += await ladder("vllm, no prefix cache", lm, subject, levels)
        finally:
            await lm.close()
    return speeds, details


async def ways_to_stream(
    lm: VLLMSpeechLM, subject: Subject, step_ms: float, *, growing: bool
) -> Row:
    """Measure one of the two ways to stream text."""
    times = await block_to_token(lm, subject, 12, growing=growing)
    median = float(np.median(times))
    return {
        "way": "a request for each block" if growing else "one streamed request",
        "block to token ms": median,
        "p95 ms": float(np.percentile(times, 95)),
        "in decode steps": median / step_ms,
    }


async def run(arguments: argparse.Namespace) -> tuple[list[Speed], dict[str, Any]]:
    """Measure everything that is installed here."""
    subject = Subject.of(arguments.model)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    small = arguments.quick or (arguments.size == "full" and device == "cpu")
    levels = (1, 4) if small else (1, 4, 8)
    speeds: list[Speed] = []
    if arguments.size == "nano" and arguments.only is None:
        speeds = await on_torch(subject, levels)
    details: dict[str, Any] = {}
    try:
        installed_version()
    except InvalidConfiguration as error:
        print(error.message)
        return speeds, details
    more, found = await on_vllm(subject, levels, arguments)
    steps = {speed.concurrency: speed.gap_ms for speed in more if speed.name == "vllm"}
    details["bound"] = bound_rows(
        subject.checkpoint.lm_config, 2 if device == "cuda" else 4, bandwidth(device), steps
    )
    return speeds + more, details | found


async def on_torch(subject: Subject, levels: Sequence[int]) -> list[Speed]:
    """Measure the torch backend."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    lm = TorchSpeechLM.load(
        subject.checkpoint,
        slots=max(levels),
        positions=POSITIONS,
        device=device,
        dtype=torch.bfloat16 if device == "cuda" else torch.float32,
    )
    try:
        speeds = await ladder("torch", lm, subject, levels)
        return speeds + await ladder("torch, greedy", lm, subject, levels, greedy=True)
    finally:
        await lm.close()


def main() -> None:
    parser = switches(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", type=Path, help="a model directory (size nano)")
    parser.add_argument(
        "--size",
        choices=list(PROMPTS),
        default="nano",
        help="full: vLLM alone, on CosyVoice 3 of published size with random weights",
    )
    parser.add_argument("--only", choices=["prefix"], help="the prefix cache alone")
    parser.add_argument("--block", type=int, default=None, help="ids of a block of vLLM's cache")
    arguments = parser.parse_args()
    if (arguments.model is None) is (arguments.size == "nano"):
        parser.error("--model DIR, or --size full")
    speeds, details = asyncio.run(run(arguments))

    def draw(axes: Axes) -> None:
        for name in dict.fromkeys(speed.name for speed in speeds):
            part = [speed for speed in speeds if speed.name == name]
            axes.plot(
                [s.concurrency for s in part], [s.tokens_per_s for s in part], "o-", label=name
            )
        axes.set_xlabel("sessions at once")
        axes.set_ylabel("speech tokens per second")
        axes.axline((0, 0), slope=25, color="gray", linestyle=":", label="real time")
        axes.legend()

    for title, rows in details.items():
        if isinstance(rows, list) and rows:
            print_table(title, rows)
    publish(arguments, "Speech LM", [speed.row() for speed in speeds], details=details, draw=draw)


if __name__ == "__main__":
    main()
