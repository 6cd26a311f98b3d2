"""What a deployment decides about the acoustic engine, and the bounds of what a session may ask."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from antiphon.engine.acoustic.interface import AcousticSettings
from antiphon.engine.errors import InvalidConfiguration
from antiphon.engine.hops import LONGEST_LEAD_S

MOST_STEPS = 64
STRONGEST_GUIDANCE = 10.0
SMALLEST_LEFT_CONTEXT = 1
"""Chunks: the position convolutions and the look-ahead reach into the chunk before."""
SPEEDS = (0.5, 2.0)
"""Beyond these the stretched mel is no speech that the vocoder was trained on."""
PRECISIONS = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Limits of one acoustic engine.

    Raises:
        InvalidConfiguration: a value outside its bounds, naming the field.
    """

    cache_mib: int = 1024
    """Keys and values of all sessions and voices. Memory is taken when first used."""
    voices_mib: int = 512
    """Part of it that prompts of voices may hold while nobody speaks with them."""
    max_streams: int = 64
    """Turns open at once; one more is refused."""
    batch_rows: int = 2
    """Most rows of an estimator call; a session has 2 with guidance.

    On a CPU a call's time grows with its rows (eight sessions together save 5 % of the work), so
    one session at a time makes the first of them wait least. On a GPU: 128.
    """
    free_rows: int = 2
    """Rows that cost (nearly) nothing more than one session's. On a GPU: 64."""
    urgent_s: float = 0.2
    """Sessions due within this time share a call even where that makes it longer."""
    max_waiting_tokens: int = 1500
    """Most tokens of one hop: a minute of speech."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """Of the estimator's weights and caches; solver, F0 and phase keep theirs. Half halves both."""
    cuda_graphs: bool = False
    """Capture each shape of an estimator call (CUDA only)."""
    own_process: bool = False
    """Compute in another process, whose interpreter lock is not the speech LM's (see `process.py`).
    A script must then guard its entry by `__name__`, as for every use of `multiprocessing`."""
    threads: int = 1
    """CPU threads of the worker; the speech LM and the event loop want the other cores."""
    hang_limit_s: float = 30.0
    """A process that computes nothing for so long is killed and started again. It answers between
    two calls of the model; the longest of them, and a shape that is captured, take a few seconds.
    """
    loading_limit_s: float = 900.0
    """The same while it loads: minutes, for a large checkpoint on a slow disk."""

    def __post_init__(self) -> None:
        _check("cache_mib", self.cache_mib, 1, 1 << 20)
        _check("voices_mib", self.voices_mib, 0, self.cache_mib)
        _check("max_streams", self.max_streams, 1, 1 << 16)
        _check("batch_rows", self.batch_rows, 2, 1 << 12)
        _check("free_rows", self.free_rows, 1, self.batch_rows)
        _check("urgent_s", self.urgent_s, 0.0, 10.0)
        _check("max_waiting_tokens", self.max_waiting_tokens, 1, 1 << 20)
        _check("threads", self.threads, 1, 256)
        _check("hang_limit_s", self.hang_limit_s, 0.1, 3600.0)
        _check("loading_limit_s", self.loading_limit_s, 0.1, 86400.0)
        if self.precision not in PRECISIONS:
            raise InvalidConfiguration(
                f"precision is {self.precision!r}, but must be one of {', '.join(PRECISIONS)}",
                field="precision",
                limit=", ".join(PRECISIONS),
            )


def gpu_settings(**changes: Any) -> EngineSettings:
    """What a GPU wants: rows are nearly free, half precision, captured calls."""
    wanted: dict[str, Any] = {
        "cache_mib": 32 << 10,
        "voices_mib": 8 << 10,
        "batch_rows": 128,
        "free_rows": 64,
        "precision": "bfloat16",
        "cuda_graphs": True,
    }
    return EngineSettings(**(wanted | changes))


def validate_session(settings: AcousticSettings) -> None:
    """Check what a session asks for.

    Raises:
        InvalidConfiguration: out of range, naming the field.
    """
    if not isinstance(settings.steps, int):
        raise InvalidConfiguration(
            f"steps is {settings.steps!r}, but must be a whole number", field="steps"
        )
    _check("steps", settings.steps, 1, MOST_STEPS)
    _check("cfg_rate", settings.cfg_rate, 0.0, STRONGEST_GUIDANCE)
    _check("speed", settings.speed, *SPEEDS)
    if settings.solver not in ("euler", "midpoint"):
        raise InvalidConfiguration(
            f"solver is {settings.solver!r}, but must be euler or midpoint",
            field="solver",
            limit="euler, midpoint",
        )
    if settings.left_context_chunks is not None:
        _check("left_context_chunks", settings.left_context_chunks, SMALLEST_LEFT_CONTEXT, 1 << 20)
    if settings.lead_s is not None:
        _check("lead_s", settings.lead_s, 0.0, LONGEST_LEAD_S)


def _check(name: str, value: float, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InvalidConfiguration(f"{name} is {value!r}, but must be a number", field=name)
    if not low <= value <= high:
        raise InvalidConfiguration(
            f"{name} is {value:g}, but must be {low:g} to {high:g}",
            field=name,
            limit=f"{low:g}..{high:g}",
        )
