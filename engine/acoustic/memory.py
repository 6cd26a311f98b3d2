"""What a session and a voice cost in memory, computed from the configuration alone."""

from __future__ import annotations

from dataclasses import dataclass

from antiphon.engine.acoustic.interface import CHUNK_TOKENS, LOOK_AHEAD_TOKENS, AcousticSettings
from antiphon.engine.acoustic.settings import EngineSettings
from antiphon.engine.checkpoint.config import FlowConfig
from antiphon.engine.flow.cached_dit import TAIL
from antiphon.engine.flow.flow_matching import plan_solver

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class AcousticMemory:
    """Bytes of the flow's caches (version 3). The vocoder's state, below 1 MiB, comes on top."""

    chunk: int
    """Keys and values of one second of audio."""
    voice: int
    """A voice's prompt, once for all its sessions."""
    session: int | None
    """The most that one session holds beyond it; None where left context has no limit."""


def acoustic_memory(
    flow: FlowConfig,
    engine: EngineSettings,
    session: AcousticSettings,
    prompt_tokens: int = 3 * CHUNK_TOKENS + LOOK_AHEAD_TOKENS,
) -> AcousticMemory:
    """Compute what `antiphon doctor` prints."""
    config = flow.estimator
    plan = plan_solver(session.solver, session.steps, session.cfg_rate)
    solutions = len(plan.evaluations) * plan.guidance_rows
    item = ITEM_BYTES[engine.precision]
    inner = config.heads * config.dim_head
    chunk = solutions * config.depth * config.static_chunk_size * 2 * inner * item
    tails = solutions * 2 * TAIL * config.dim * item
    shared = max(0, prompt_tokens - LOOK_AHEAD_TOKENS) // CHUNK_TOKENS
    voice = shared * chunk + tails
    if session.left_context_chunks is None:
        return AcousticMemory(chunk, voice, None)
    # Besides the limit: the chunk in which the prompt ends, which is kept, and the one under way.
    return AcousticMemory(chunk, voice, (session.left_context_chunks + 2) * chunk + 2 * tails)
