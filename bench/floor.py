"""What a first packet costs when each of its stages runs alone."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from antiphon.engine.acoustic.interface import LOOK_AHEAD_TOKENS, AcousticSettings
from antiphon.engine.checkpoint import open_checkpoint
from antiphon.engine.generations import load_stages
from antiphon.engine.prompts import PromptMaker
from antiphon.engine.session import SessionVoice, Stages
from antiphon.engine.speech_lm.request import SpeechLMRequest
from antiphon.server.config import CosyVoiceEngineSection, WatermarkSection
from antiphon.server.loading import house_checkpoint, load_watermark

REPETITIONS = 7


@dataclass(frozen=True, slots=True)
class Floor:
    """Medians, in milliseconds."""

    lm_steps: int
    lm_step_ms: float
    flow_ms: float
    vocoder_ms: float
    watermark_ms: float
    cold_flow_ms: float
    """The flow where the voice's prompt has to be solved first."""

    def stages_ms(self) -> dict[str, float]:
        """Return the time of each stage."""
        return {
            "lm": self.lm_steps * self.lm_step_ms,
            "flow": self.flow_ms,
            "vocoder": self.vocoder_ms,
            "watermark": self.watermark_ms,
        }

    def describe(self) -> str:
        """Return the sum and what it is made of."""
        return (
            f"{sum(self.stages_ms().values()):.1f} ms = {self.lm_steps} LM steps × "
            f"{self.lm_step_ms:.2f} + flow {self.flow_ms:.1f} + vocoder {self.vocoder_ms:.1f} + "
            f"watermark {self.watermark_ms:.1f}; with a voice not yet known, flow "
            f"{self.cold_flow_ms:.1f}"
        )


def measure_floor(section: CosyVoiceEngineSection, watermark: WatermarkSection) -> Floor:
    """Measure the stages of one configured engine, one after the other, in this process."""
    return asyncio.run(_measure(section, watermark))


async def _measure(section: CosyVoiceEngineSection, watermark: WatermarkSection) -> Floor:
    directory = section.model_dir or house_checkpoint()
    assert directory is not None
    checkpoint = open_checkpoint(directory)
    stages = load_stages(checkpoint, load_watermark(watermark), max_sessions=1)
    prompts = PromptMaker(checkpoint)
    first = prompts.stored(next(iter(checkpoint.voices.values())))
    voice = SessionVoice(prompts.fit(first).prompt, first.acoustic)
    tokens = section.first_hop + LOOK_AHEAD_TOKENS
    try:
        hop, step_ms = await _lm(stages, voice, tokens)
        acoustic = AcousticSettings(
            steps=section.solver_steps, cfg_rate=section.cfg_rate, solver=section.solver
        )
        flow_ms, vocoder_ms, samples, cold_ms = await _acoustic(stages, voice, hop, acoustic)
    finally:
        await stages.lm.close()
        await stages.acoustic.close()
    watermark_ms = _watermark(stages, samples)
    return Floor(tokens, step_ms, flow_ms, vocoder_ms, watermark_ms, cold_ms)


async def _lm(stages: Stages, voice: SessionVoice, tokens: int) -> tuple[list[int], float]:
    """Return some tokens and the milliseconds of a step."""
    front_end = stages.text()
    pieces = front_end.push("The train to Brighton leaves from platform four.") + front_end.end()
    text = [identifier for piece in pieces for identifier in piece.ids]
    made: list[int] = []
    times: list[float] = []
    for _ in range(REPETITIONS):
        made = []
        generation = stages.lm.generate(SpeechLMRequest(voice.lm, text, stages.sampling))
        async for token in generation:
            made.append(token)
            times.append(time.perf_counter())
            if len(made) == tokens + 1:
                break
        await generation.aclose()
    steps = [b - a for a, b in pairwise(times)]
    return made[:tokens], 1000 * float(np.median(steps))


async def _acoustic(
    stages: Stages, voice: SessionVoice, hop: list[int], settings: AcousticSettings
) -> tuple[float, float, int, float]:
    """Return the milliseconds of flow and vocoder for a first hop, its samples, and the
    milliseconds of the flow while the voice is not known."""
    flow, vocoder, samples, cold = [], [], 0, 0.0
    for _ in range(REPETITIONS + 1):
        stream = await stages.acoustic.open(voice.acoustic, settings)
        spoken = await stream.speak(hop, final=False)
        stream.close()
        flow.append(1000 * spoken.timings["flow"])
        vocoder.append(1000 * spoken.timings["vocoder"])
        samples = len(spoken.samples)
        cold = cold or flow[0] + 1000 * spoken.timings["queue"]
    # The first one solves the voice's prompt too; that wait is counted as queueing.
    return float(np.median(flow[1:])), float(np.median(vocoder[1:])), samples, cold


def _watermark(stages: Stages, samples: int) -> float:
    """Return the milliseconds of marking so many samples at the beginning of a turn."""
    noise = np.random.default_rng(0).normal(0, 0.05, samples).astype(np.float32)
    times = []
    for _ in range(REPETITIONS + 1):
        stream = stages.watermark.stream(stages.acoustic.sample_rate)
        started = time.perf_counter()
        stream.push(noise)
        times.append(1000 * (time.perf_counter() - started))
    return float(np.median(times[1:]))
