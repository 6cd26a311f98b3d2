"""What a model needs of a device's memory, worked out before anything is loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Final

import torch

from antiphon.engine.acoustic.settings import EngineSettings
from antiphon.engine.checkpoint import Checkpoint
from antiphon.engine.checkpoint.config import ModelGeneration
from antiphon.engine.errors import InvalidConfiguration
from antiphon.engine.inspection import expected_weights
from antiphon.engine.speech_lm.memory import GIB, kv_bytes_per_id, torch_positions
from antiphon.engine.speech_lm.settings import VLLM_KV_GIB, LMSettings

CARDS_GIB: Final = (8, 12, 16, 24, 80)
RUNTIME_GIB: Final = 1.0
"""CUDA context, kernels and working memory of one process, measured generously."""
FLOAT32, HALF = 4, 2


@dataclass(frozen=True, slots=True)
class ModelMemory:
    """GiB that one model takes at most, by part."""

    weights: float
    kv: float
    """Keys and values of the speech LM."""
    acoustic: float
    """Keys and values of the flow, of sessions and voices."""
    runtime: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.weights + self.kv + self.acoustic + self.runtime


def model_memory(
    checkpoint: Checkpoint,
    lm: LMSettings,
    *,
    max_sessions: int,
    on_gpu: bool,
    acoustic: EngineSettings | None = None,
) -> ModelMemory:
    """Work out what a checkpoint will take, from its configuration alone.

    Version 1 keeps nothing for good: what its sessions hold while they speak is not counted.

    Raises:
        CheckpointError: a configuration that cannot be read.
        InvalidConfiguration: a budget in which no sentence finds room.
    """
    sizes = {file: sum(map(prod, shapes.values())) for file, shapes in expected_weights(checkpoint)}
    vllm = lm.backend == "vllm"
    lm_item = HALF if vllm and on_gpu else FLOAT32
    weights = lm_item * sizes["llm.pt"] + FLOAT32 * (sizes["flow.pt"] + sizes["hift.pt"])
    cached = 0.0
    if checkpoint.generation is not ModelGeneration.V1:
        cached = (acoustic or EngineSettings()).cache_mib / 1024
    return ModelMemory(
        weights=weights / GIB,
        kv=_kv_gib(checkpoint, lm, max_sessions),
        acoustic=cached,
        # vLLM runs in a process of its own.
        runtime=2 * RUNTIME_GIB if vllm else RUNTIME_GIB,
    )


def _kv_gib(checkpoint: Checkpoint, lm: LMSettings, max_sessions: int) -> float:
    if lm.backend == "vllm":
        return VLLM_KV_GIB if lm.kv_gib is None else lm.kv_gib
    if checkpoint.generation is ModelGeneration.V1:
        return 0.0
    config = checkpoint.lm_config
    positions = torch_positions(config, lm, max_sessions)
    return max_sessions * positions * kv_bytes_per_id(config, FLOAT32) / GIB


def device_gib(device: str) -> float:
    """Return the memory of a device: of the GPU, or of this machine."""
    if device.startswith("cuda"):
        return float(torch.cuda.get_device_properties(device).total_memory) / GIB
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GIB


def refuse_what_cannot_fit(models: Mapping[str, ModelMemory], limit_gib: float) -> None:
    """Refuse models whose sum does not fit, before any is loaded.

    Raises:
        InvalidConfiguration: naming the parts, the sum and the limit; `field` is `memory_gib`.
    """
    total = sum(model.total for model in models.values())
    if total <= limit_gib:
        return
    named = "; ".join(
        f"{name}: weights {model.weights:.2f}, keys and values {model.kv:.2f}, acoustic caches "
        f"{model.acoustic:.2f}, runtime {model.runtime:.2f}"
        for name, model in models.items()
    )
    raise InvalidConfiguration(
        f"The models need {total:.2f} GiB and there are {limit_gib:.2f} ({named}). Lower "
        "lm.kv_gib, cache_mib or server.limits.max_sessions, or load fewer models.",
        field="memory_gib",
        limit=round(limit_gib, 2),
    )
