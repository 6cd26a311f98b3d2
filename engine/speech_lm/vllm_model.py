"""The speech LM inside vLLM: Qwen2 over the unified vocabulary, a head over its speech rows.

Sampled ids are rows of the same table, so they feed straight back in and the prefix cache works on
plain ids.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from vllm.config import VllmConfig
from vllm.model_executor.layers.layernorm import RMSNorm
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.models.qwen2 import Qwen2Model
from vllm.model_executor.models.utils import AutoWeightsLoader, maybe_prefix
from vllm.platforms import current_platform
from vllm.sequence import IntermediateTensors


class AntiphonSpeechLM(nn.Module):
    """What `vllm_export` writes. Its config names the head's rows and whether it has a bias."""

    packed_modules_mapping = {  # noqa: RUF012 (vLLM reads it from the class)
        "qkv_proj": ["q_proj", "k_proj", "v_proj"],
        "gate_up_proj": ["gate_proj", "up_proj"],
    }

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__()
        config = vllm_config.model_config.hf_config
        self.config = config
        self.model = Qwen2Model(vllm_config=vllm_config, prefix=maybe_prefix(prefix, "model"))
        if current_platform.is_cpu():
            _replace_norms(self.model)
        self.lm_head = ParallelLMHead(
            config.speech_rows,
            config.hidden_size,
            bias=config.speech_head_bias,
            quant_config=vllm_config.quant_config,
            prefix=maybe_prefix(prefix, "lm_head"),
        )
        self.logits_processor = LogitsProcessor(config.speech_rows)
        self.make_empty_intermediate_tensors = self.model.make_empty_intermediate_tensors

    def embed_input_ids(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Return the embeddings of unified ids."""
        embedded: torch.Tensor = self.model.embed_input_ids(input_ids)
        return embedded

    def forward(
        self,
        input_ids: torch.Tensor | None,
        positions: torch.Tensor,
        intermediate_tensors: IntermediateTensors | None = None,
        inputs_embeds: torch.Tensor | None = None,
    ) -> torch.Tensor | IntermediateTensors:
        """Return hidden states, (positions, hidden)."""
        return self.model(input_ids, positions, intermediate_tensors, inputs_embeds)

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor | None:
        """Return logits over the speech rows, (positions, rows)."""
        logits: torch.Tensor | None = self.logits_processor(
            self.lm_head, hidden_states, self.lm_head.bias
        )
        return logits

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Load what `vllm_export` wrote; returns the names that were found."""
        loaded: set[str] = AutoWeightsLoader(self).load_weights(weights)
        return loaded


class FusedNorm(nn.Module):
    """RMS normalisation by vLLM's own CPU kernel.

    On a CPU vLLM composes it of seven operations, which took an eighth of a small model's step.
    """

    def __init__(self, like: RMSNorm) -> None:
        super().__init__()
        self.weight = like.weight
        self.epsilon: float = like.variance_epsilon

    def forward(
        self, hidden: torch.Tensor, residual: torch.Tensor | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Normalise; with a residual, add it first and return the sum too (both in place)."""
        if residual is None:
            normal = torch.empty_like(hidden)
            torch.ops._C.rms_norm(normal, hidden, self.weight, self.epsilon)
            return normal
        torch.ops._C.fused_add_rms_norm(hidden, residual, self.weight, self.epsilon)
        return hidden, residual


def _replace_norms(model: nn.Module) -> None:
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is RMSNorm:
                setattr(module, name, FusedNorm(child))
