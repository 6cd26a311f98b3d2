"""What a model needs of a device's memory, worked out before anything is loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Final

import torch

from antiphon.engine.acoustic.interface import AcousticSettings
from antiphon.engine.acoustic.memory import ITEM_BYTES, acoustic_memory
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
    session: float | None = None
    """The most that one session keeps in the acoustic caches (version 3, bounded left context)."""
    voice: float | None = None
    """A voice's prompt of three seconds in the acoustic caches, once for all its sessions."""

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
    session: AcousticSettings | None = None,
) -> ModelMemory:
    """Work out what a checkpoint will take, from its configuration alone.

    `acoustic` and `session` are what flow and vocoder are run with. Version 1 keeps nothing for
    good: what its sessions hold while they speak is not counted.

    Raises:
        CheckpointError: a configuration that cannot be read.
        InvalidConfiguration: a budget in which no sentence finds room.
    """
    sizes = {file: sum(map(prod, shapes.values())) for file, shapes in expected_weights(checkpoint)}
    acoustic = acoustic or EngineSettings()
    vllm = lm.backend == "vllm"
    weights = (
        (HALF if vllm and on_gpu else FLOAT32) * sizes["llm.pt"]
        + ITEM_BYTES[acoustic.precision] * sizes["flow.pt"]
        + FLOAT32 * sizes["hift.pt"]
    )
    first = checkpoint.generation is ModelGeneration.V1
    found = ModelMemory(
        weights=weights / GIB,
        kv=_kv_gib(checkpoint, lm, max_sessions),
        acoustic=0.0 if first else acoustic.cache_mib / 1024,
        # vLLM runs in a process of its own, and so may flow and vocoder.
        runtime=RUNTIME_GIB * (1 + vllm + (acoustic.own_process and on_gpu)),
    )
    if checkpoint.generation is not ModelGeneration.V3:
        return found
    caches = acoustic_memory(checkpoint.flow_config, acoustic, session or AcousticSettings())
    most = None if caches.session is None else caches.session / GIB
    return replace(found, session=most, voice=caches.voice / GIB)


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
