"""What a deployment decides about the speech LM of a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from antiphon.engine.errors import InvalidConfiguration

BACKENDS: Final = ("torch", "vllm")
VLLM_KV_GIB: Final = 1.0
"""Keys and values of vLLM where no budget is set: 40 000 ids of a published model in bfloat16."""
TORCH_POSITIONS: Final = 2048
"""Ids of one sequence of the torch backend: 30 s of prompt, a long sentence, and its speech."""
FEWEST_POSITIONS: Final = 256
"""Fewer hold no sentence."""


@dataclass(frozen=True, slots=True)
class LMSettings:
    """Backend of the speech LM and its memory.

    Raises:
        InvalidConfiguration: a value out of its bounds; `field` begins with `lm.`.
    """

    backend: Literal["torch", "vllm"] = "torch"
    """`torch` runs in this process; `vllm` in one of its own, with a prefix cache."""
    kv_gib: float | None = None
    """Memory for keys and values of all sessions, so that other models fit beside it. None: what
    `TORCH_POSITIONS` ids for every session take (torch), or `VLLM_KV_GIB` (vllm)."""
    block_size: int | None = None
    """Ids of one block of vLLM's prefix cache: smaller ones share more of a prompt, larger ones
    cost less book-keeping. A multiple of 32 on a CPU, 16 on a GPU; None: just that."""
    cache_dir: Path | None = None
    """Where exported vLLM model directories are kept; None for the user's cache folder."""

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise InvalidConfiguration(
                f"lm.backend is one of {', '.join(BACKENDS)}, not {self.backend!r}.",
                field="lm.backend",
                limit=", ".join(BACKENDS),
            )
        if self.kv_gib is not None and not 0 < self.kv_gib <= 4096:
            raise InvalidConfiguration(
                "lm.kv_gib must be above zero and at most 4096.", field="lm.kv_gib", limit=4096
            )
        if self.block_size is not None and (self.block_size < 16 or self.block_size % 16):
            raise InvalidConfiguration(
                "lm.block_size must be a multiple of 16.", field="lm.block_size", limit=16
            )
        for name in ("block_size", "cache_dir"):
            if self.backend == "torch" and getattr(self, name):
                raise InvalidConfiguration(
                    f"lm.{name} is for the vllm backend; torch has no prefix cache.",
                    field=f"lm.{name}",
                )
