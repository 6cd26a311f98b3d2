"""The part of an engine's configuration that is about its speech LM."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from antiphon.engine.errors import InvalidConfiguration
from antiphon.engine.speech_lm.settings import LMSettings


class SpeechLMSection(BaseModel):
    """The speech LM of an engine: where it runs, and the memory it may use."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    backend: Literal["torch", "vllm"] = "torch"
    """`torch`: in this process. `vllm` (extra `vllm`): in one of its own, where voices' prompts are
    computed once for all sessions."""
    kv_gib: float | None = Field(default=None, gt=0, le=4096)
    """Memory for keys and values of all sessions together. None: 2048 ids for each session
    (torch), 1 GiB (vllm)."""
    block_size: int | None = Field(default=None, ge=16, le=1024)
    """Ids of one block of vLLM's prefix cache; smaller ones share more of a prompt. None: 32 on a
    CPU, 16 on a GPU."""
    cache_dir: Path | None = None
    """Where model directories exported for vLLM are kept; None for the user's cache folder."""
    isolate_callers: bool = False
    """Share no cached prompt between callers with different API keys: every caller's first turn
    in a voice then computes the voice's prompt."""

    def settings(self) -> LMSettings:
        """The engine's form.

        Raises:
            InvalidConfiguration: a combination that cannot work; `field` begins with `lm.`.
        """
        if self.isolate_callers and self.backend == "torch":
            raise InvalidConfiguration(
                "lm.isolate_callers is for the vllm backend; torch has no prefix cache",
                field="lm.isolate_callers",
            )
        return LMSettings(self.backend, self.kv_gib, self.block_size, self.cache_dir)
