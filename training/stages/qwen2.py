"""Qwen2 with gradients, under the keys of `llm.pt`.

The engine's own network folds scales and packs matrices for speed and has no autograd; a test holds
both to the same numbers.
"""

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from antiphon.engine.checkpoint.config import LMConfig, Qwen2Config
from antiphon.engine.speech_lm.layout import Vocabulary


@dataclass(frozen=True)
class Guide:
    """Where some heads should look: `target` (batch, positions), -1 where anywhere will do."""

    target: Tensor
    layers: tuple[int, ...] = (1, 2)
    heads: int = 2


class _Attention(nn.Module):
    def __init__(self, config: Qwen2Config) -> None:
        super().__init__()
        hidden, kv = config.hidden_size, config.num_key_value_heads * config.head_dim
        self.config = config
        self.q_proj = nn.Linear(hidden, hidden)
        self.k_proj = nn.Linear(hidden, kv)
        self.v_proj = nn.Linear(hidden, kv)
        self.o_proj = nn.Linear(hidden, hidden, bias=False)

    def forward(
        self, x: Tensor, rotary: tuple[Tensor, Tensor], guide: Guide | None
    ) -> tuple[Tensor, Tensor | None]:
        batch, length, _ = x.shape
        dim = self.config.head_dim
        query, key, value = (
            layer(x).view(batch, length, -1, dim).transpose(1, 2)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        query, key = _turned(query, *rotary), _turned(key, *rotary)
        share = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(share, 1), value.repeat_interleave(share, 1)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        penalty = None
        if guide is not None:
            penalty = _guidance(query[:, : guide.heads], key[:, : guide.heads], guide.target)
        out: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return out, penalty


def _guidance(query: Tensor, key: Tensor, target: Tensor) -> Tensor:
    """Mean of -log attention on the wanted position."""
    scores = query @ key.transpose(2, 3) * query.shape[-1] ** -0.5
    length = scores.shape[-1]
    hidden = torch.ones(length, length, dtype=torch.bool, device=scores.device).triu(1)
    logs = scores.masked_fill(hidden, float("-inf")).log_softmax(-1)
    wanted = target >= 0
    index = target.clamp(min=0)[:, None, :, None].expand(-1, scores.shape[1], -1, -1)
    found: Tensor = logs.gather(-1, index)[..., 0].mean(1)
    return -found[wanted].mean()


def _turned(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    swapped = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cosine + swapped * sine


class _MLP(nn.Module):
    def __init__(self, config: Qwen2Config) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class _Layer(nn.Module):
    def __init__(self, config: Qwen2Config) -> None:
        super().__init__()
        self.self_attn = _Attention(config)
        self.mlp = _MLP(config)
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)


class _Backbone(nn.Module):
    def __init__(self, config: Qwen2Config) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(_Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(self, x: Tensor, guide: Guide | None) -> tuple[Tensor, list[Tensor]]:
        rotary = _rotary(self.config, x)
        penalties = []
        for number, layer in enumerate(cast(list[_Layer], list(self.layers))):
            guided = guide if guide is not None and number in guide.layers else None
            mixed, penalty = layer.self_attn(layer.input_layernorm(x), rotary, guided)
            x = x + mixed
            x = x + layer.mlp(layer.post_attention_layernorm(x))
            if penalty is not None:
                penalties.append(penalty)
        return self.norm(x), penalties


def _rotary(config: Qwen2Config, x: Tensor) -> tuple[Tensor, Tensor]:
    half = torch.arange(0, config.head_dim, 2, device=x.device).float() / config.head_dim
    positions = torch.arange(x.shape[1], device=x.device).float()
    angles = positions[:, None] / config.rope_theta**half
    return torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)


class _Named(nn.Module):
    """A level of the published names: `llm.model.model`."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model


class TrainableSpeechLM(nn.Module):
    """Unified ids (`Vocabulary`) in, logits over the speech rows out."""

    def __init__(self, config: LMConfig) -> None:
        super().__init__()
        self.vocabulary = Vocabulary(config)
        hidden = config.backbone.hidden_size
        self.llm = _Named(_Named(_Backbone(config.backbone)))
        self.llm_decoder = nn.Linear(hidden, config.ids.rows, bias=False)
        self.speech_embedding = nn.Embedding(config.ids.rows, hidden)
        for weight in self.parameters():
            if weight.ndim == 2:
                nn.init.normal_(weight, std=0.02)

    def forward(self, ids: Tensor, guide: Guide | None = None) -> tuple[Tensor, Tensor]:
        """(batch, positions) to (batch, positions, rows) and the attention guide's penalty."""
        backbone = cast(_Backbone, cast(_Named, self.llm.model).model)
        table = torch.cat([self.speech_embedding.weight, backbone.embed_tokens.weight])
        hidden, penalties = backbone(functional.embedding(ids, table), guide)
        penalty = torch.stack(penalties).mean() if penalties else hidden.new_zeros(())
        logits: Tensor = self.llm_decoder(hidden)
        return logits, penalty
