"""How soon a voice speaks whose prompt is cached, against one that was never heard."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass

import numpy as np

from antiphon.engine.speech_lm.request import SpeechLMRequest
from antiphon.engine.speech_lm.vllm_backend import VLLMSpeechLM, shareable_prefix
from bench.lm_subject import Subject
from bench.processes import cpu_ms
from bench.report import Row

PAUSE_S = 0.3
"""Between two measurements: the step that was under way is not the next one's waiting."""


@dataclass(frozen=True)
class First:
    """One first speech token."""

    wall_ms: float
    cpu_ms: float
    """Of this process and the engine's, all threads: other jobs on the machine do not count."""
    cached: int


async def first_token(lm: VLLMSpeechLM, request: SpeechLMRequest) -> First:
    """Time one request up to its first speech token."""
    await asyncio.sleep(PAUSE_S)
    processes = [os.getpid(), *(p.pid for p in lm.engine.processes if p.pid is not None)]
    used, start = cpu_ms(processes), time.perf_counter()
    generation = lm.generate(request)
    await anext(generation)
    wall = 1e3 * (time.perf_counter() - start)
    used = cpu_ms(processes) - used
    await generation.aclose()
    return First(wall, used, generation.cached_ids)


def voice_seed(blocks: int, number: int) -> int:
    """Return the seed of a voice of its own for each length.

    The same numbers would begin a longer prompt as they did a shorter one, whose blocks are cached.
    """
    return blocks * 10_000 + number


async def prefix_reuse(lm: VLLMSpeechLM, subject: Subject, blocks: int, repetitions: int) -> Row:
    """Compare voices never heard before with the same ones heard again, in turns.

    Minima, since other jobs only ever add to a time; medians beside them.
    """
    cold: list[First] = []
    warm: list[First] = []
    # The first of a length also meets what the engine has not yet allocated.
    await first_token(lm, subject.request(1, prompt=subject.voice(voice_seed(blocks, 0), blocks)))
    for number in range(1, 1 + repetitions):
        voice = subject.voice(voice_seed(blocks, number), blocks)
        cold.append(await first_token(lm, subject.request(1, prompt=voice)))
        warm.append(await first_token(lm, subject.request(1, prompt=voice)))
    assert max(one.cached for one in cold) == 0, "a cold prompt was cached"
    shareable = len(shareable_prefix(lm.builder, subject.voice(0, blocks)))
    return {
        "block": lm.block_size,
        "shareable ids": shareable,
        "blocks": shareable // lm.block_size,
        "cached ids": min(one.cached for one in warm),
        "cold ms": min(one.wall_ms for one in cold),
        "median": float(np.median([one.wall_ms for one in cold])),
        "warm ms": min(one.wall_ms for one in warm),
        "median ": float(np.median([one.wall_ms for one in warm])),
        "warm / cold": min(one.wall_ms for one in warm) / min(one.wall_ms for one in cold),
        "of CPU time": min(one.cpu_ms for one in warm) / min(one.cpu_ms for one in cold),
    }


async def plain_reuse(lm: VLLMSpeechLM, subject: Subject) -> Row:
    """The plain layout shares the prompt's text alone."""
    voice = subject.voice(77)
    await first_token(lm, subject.request(1, prompt=voice, text=subject.text(5)))
    again = await first_token(lm, subject.request(1, prompt=voice, text=subject.text(9)))
    return {
        "layout": "plain",
        "shareable ids": 1 + len(voice.text_ids),
        "cached ids": again.cached,
    }
