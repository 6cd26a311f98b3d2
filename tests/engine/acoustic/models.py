"""The tiny checkpoint, ready to stream, for the tests of flow, vocoder and acoustic engine."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from antiphon.engine.acoustic.settings import EngineSettings
from antiphon.engine.acoustic.speech import Vocoder
from antiphon.engine.checkpoint.checkpoint import Checkpoint, open_checkpoint
from antiphon.engine.flow.cache import PagePool
from antiphon.engine.flow.flow import Flow
from antiphon.engine.flow.flow_matching import SolverPlan, plan_solver
from antiphon.engine.flow.step import CachedFlow, solve
from antiphon.engine.flow.stream import FlowState, FlowVoice
from antiphon.engine.vocoder.hift import HiFT
from antiphon.engine.vocoder.source import SourceNoise
from antiphon.engine.voice.voice import AcousticPrompt
from tests import golden

PLAN = plan_solver("euler", 10, 0.7)
ONE_STEP = plan_solver("euler", 1, 0.7)


@cache
def checkpoint() -> Checkpoint:
    return open_checkpoint(golden.model_dir(3))


@cache
def flow() -> Flow:
    module = Flow(checkpoint().flow_config)
    module.load_state_dict(checkpoint().flow_state_dict(), strict=True)
    return module.eval().requires_grad_(False)


@cache
def hift() -> HiFT:
    module = HiFT(checkpoint().hift_config)
    module.load_state_dict(checkpoint().hift_state_dict(), strict=True)
    return module.prepare_for_serving()


@cache
def source_noise() -> SourceNoise:
    return SourceNoise(checkpoint().flow_config, checkpoint().hift_config)


def vocoder() -> Vocoder:
    return Vocoder(hift(), source_noise())


def streamer(budget_mib: int = 256) -> CachedFlow:
    config = flow().config.estimator
    pool = PagePool(
        layers=config.depth,
        frames=config.static_chunk_size,
        width=config.heads * config.dim_head,
        budget_bytes=budget_mib << 20,
    )
    return CachedFlow(flow(), pool)


def small_settings(**changes: float) -> EngineSettings:
    return EngineSettings(**({"cache_mib": 256, "voices_mib": 64} | changes))  # type: ignore[arg-type]


def prompt(tokens: int | None = None, key: str = "golden") -> AcousticPrompt:
    """The golden voice, cut to its first tokens."""
    ids = golden.array(3, "frontend", "zero_shot.speech_token")[0][:tokens]
    mel = golden.array(3, "frontend", "zero_shot.prompt_speech_feat")[0][: 2 * len(ids)]
    embedding = golden.array(3, "frontend", "embedding")[0]
    return AcousticPrompt(
        f"{key}-{len(ids)}", ids.numpy().astype(np.int64), mel.numpy(), embedding.numpy()
    )


def voice_of(acoustic: AcousticPrompt, to: CachedFlow) -> FlowVoice:
    return to.voice(
        torch.from_numpy(acoustic.tokens),
        torch.from_numpy(acoustic.mel),
        torch.from_numpy(acoustic.embedding),
    )


def whole(
    acoustic: AcousticPrompt, tokens: list[int], plan: SolverPlan = PLAN, *, final: bool = True
) -> torch.Tensor:
    """The uncached, chunk-masked mel of an utterance, (frames, mel)."""
    return flow().solve_whole(
        torch.tensor([tokens], dtype=torch.long),
        torch.from_numpy(acoustic.tokens)[None],
        torch.from_numpy(acoustic.mel)[None],
        torch.from_numpy(acoustic.embedding)[None],
        plan,
        final=final,
    )[0]


def hop(
    to: CachedFlow,
    state: FlowState,
    tokens: list[int],
    *,
    final: bool,
    left_context: int | None = None,
) -> tuple[FlowState, list[tuple[int, torch.Tensor]]]:
    """Solve one hop alone; returns the pieces of mel with their first frames."""
    state = to.append(state, tokens)
    target = to.available(state, final=final)
    pieces = []
    while (solution := to.next_solution(state, final=final)) is not None:
        solve(to, solution)
        pieces.append(to.speech(state, solution))
        state = to.finish(state, solution, left_context)
        if solution.stop == target:
            break
    return state, pieces
