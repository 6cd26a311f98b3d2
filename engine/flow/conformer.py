"""Conformer and transformer layers with relative positions, shared by CosyVoice 1 and 2.

Module and parameter names are those of the official checkpoints. The published configurations use
neither the convolution module nor the macaron feed-forward, so a layer is attention and one
feed-forward, each behind its norm.

Sources: Transformer-XL (arXiv 1901.02860) for the relative attention, Conformer (arXiv 2005.08100),
chunk masks as in U2 (arXiv 2012.05481).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

LAYER_NORM_EPSILON = 1e-12


@dataclass(frozen=True, slots=True)
class KeyValues:
    """Keys and values of one layer for the positions that are final, (batch, heads, n, dim)."""

    keys: Tensor
    values: Tensor


def relative_positions(first_query: int, queries: int, keys: int, dim: int) -> Tensor:
    """Return sinusoids for the distances query - key, (queries + keys - 1, dim), falling.

    Queries stand at `first_query` and after, keys at 0 and after.
    """
    furthest = first_query + queries - 1
    distances = torch.arange(furthest, first_query - keys, -1, dtype=torch.float32)
    rates = torch.exp(torch.arange(0, dim, 2, dtype=torch.float32) * -(math.log(10000.0) / dim))
    angles = distances[:, None] * rates
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


def _align(scores: Tensor, keys: int) -> Tensor:
    """Pick for query i and key j the distance i - j from (…, queries, queries + keys - 1)."""
    queries = scores.shape[-2]
    row, column = scores.stride()[-2:]
    return scores.as_strided(
        (*scores.shape[:-1], keys),
        (*scores.stride()[:-2], row - column, column),
        scores.storage_offset() + (queries - 1) * column,
    )


class RelativeAttention(nn.Module):
    """Multi-head attention with content and distance terms (Transformer-XL)."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.linear_q = nn.Linear(dim, dim)
        self.linear_k = nn.Linear(dim, dim)
        self.linear_v = nn.Linear(dim, dim)
        self.linear_out = nn.Linear(dim, dim)
        self.linear_pos = nn.Linear(dim, dim, bias=False)
        self.pos_bias_u = nn.Parameter(torch.zeros(heads, dim // heads))
        self.pos_bias_v = nn.Parameter(torch.zeros(heads, dim // heads))

    def forward(
        self, x: Tensor, positions: Tensor, mask: Tensor | None, past: KeyValues | None
    ) -> tuple[Tensor, KeyValues]:
        """Map (batch, n, dim); also return keys and values of past and present.

        `mask` is (n, past + n), True where a query may see a key.
        """
        query = self._split(self.linear_q(x))
        keys, values = self._split(self.linear_k(x)), self._split(self.linear_v(x))
        if past is not None:
            keys = torch.cat([past.keys, keys], dim=2)
            values = torch.cat([past.values, values], dim=2)
        distance = self._split(self.linear_pos(positions)[None])
        by_distance = (query + self.pos_bias_v[:, None]) @ distance.transpose(-2, -1)
        bias = _align(by_distance.contiguous(), keys.shape[2]) / math.sqrt(query.shape[-1])
        if mask is not None:
            bias = bias.masked_fill(~mask, float("-inf"))
        mixed = functional.scaled_dot_product_attention(
            query + self.pos_bias_u[:, None], keys, values, attn_mask=bias
        )
        result: Tensor = self.linear_out(mixed.transpose(1, 2).flatten(2))
        return result, KeyValues(keys, values)

    def _split(self, packed: Tensor) -> Tensor:
        return packed.view(*packed.shape[:2], self.heads, -1).transpose(1, 2)


class FeedForward(nn.Module):
    """Two linear layers around an activation."""

    def __init__(self, dim: int, hidden: int, activation: nn.Module) -> None:
        super().__init__()
        self.w_1 = nn.Linear(dim, hidden)
        self.activation = activation
        self.w_2 = nn.Linear(hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, n, dim) to the same shape."""
        result: Tensor = self.w_2(self.activation(self.w_1(x)))
        return result


class ConformerLayer(nn.Module):
    """Attention and feed-forward with the conformer's names and its Swish."""

    def __init__(self, dim: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.self_attn = RelativeAttention(dim, heads)
        self.feed_forward = FeedForward(dim, hidden, nn.SiLU())
        self.norm_mha = nn.LayerNorm(dim, eps=LAYER_NORM_EPSILON)
        self.norm_ff = nn.LayerNorm(dim, eps=LAYER_NORM_EPSILON)

    def forward(
        self, x: Tensor, positions: Tensor, mask: Tensor | None, past: KeyValues | None
    ) -> tuple[Tensor, KeyValues]:
        """Map (batch, n, dim) to the same shape; see `RelativeAttention`."""
        attended, state = self.self_attn(self.norm_mha(x), positions, mask, past)
        x = x + attended
        return x + self.feed_forward(self.norm_ff(x)), state


class TransformerLayer(nn.Module):
    """The same with the transformer's names and its ReLU (the LM of version 1)."""

    def __init__(self, dim: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.self_attn = RelativeAttention(dim, heads)
        self.feed_forward = FeedForward(dim, hidden, nn.ReLU())
        self.norm1 = nn.LayerNorm(dim, eps=LAYER_NORM_EPSILON)
        self.norm2 = nn.LayerNorm(dim, eps=LAYER_NORM_EPSILON)

    def forward(
        self, x: Tensor, positions: Tensor, mask: Tensor | None, past: KeyValues | None
    ) -> tuple[Tensor, KeyValues]:
        """Map (batch, n, dim) to the same shape; see `RelativeAttention`."""
        attended, state = self.self_attn(self.norm1(x), positions, mask, past)
        x = x + attended
        return x + self.feed_forward(self.norm2(x)), state


class InputLayer(nn.Module):
    """Linear layer and norm, scaled by the square root of the width.

    `legacy` adds the ReLU of the older recipe (the LM of version 1).
    """

    def __init__(self, input_size: int, dim: int, *, legacy: bool = False) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Linear(input_size, dim), nn.LayerNorm(dim, eps=1e-5)]
        if legacy:
            layers += [nn.Dropout(0.0), nn.ReLU()]
        self.out = nn.Sequential(*layers)
        self._scale = math.sqrt(dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, n, input) to (batch, n, dim)."""
        result: Tensor = self.out(x) * self._scale
        return result


def chunk_mask(queries: int, keys: int, chunk: int, device: torch.device) -> Tensor:
    """Return (queries, keys): each of the last `queries` positions sees to its chunk's end."""
    positions = torch.arange(keys, device=device)
    chunk_end = (positions[keys - queries :] // chunk + 1) * chunk
    return positions[None, :] < chunk_end[:, None]


def run_layers(
    layers: nn.ModuleList,
    x: Tensor,
    chunk: int | None,
    past: tuple[KeyValues, ...] | None = None,
) -> tuple[Tensor, tuple[KeyValues, ...]]:
    """Run a stack over (batch, n, dim) that follows what `past` holds.

    `chunk` limits attention to each position's own chunk and all before; None: everything.
    """
    before = past[0].keys.shape[2] if past else 0
    queries = x.shape[1]
    keys = before + queries
    positions = relative_positions(before, queries, keys, x.shape[2]).to(x)
    mask = None if chunk is None else chunk_mask(queries, keys, chunk, x.device)
    states = []
    for index, layer in enumerate(layers):
        x, state = layer(x, positions, mask, past[index] if past else None)
        states.append(state)
    return x, tuple(states)


class ConformerEncoder(nn.Module):
    """The plain encoder of version 1: flow (full attention) and text (chunks of one)."""

    def __init__(self, input_size: int, dim: int, heads: int, hidden: int, blocks: int) -> None:
        super().__init__()
        self.embed = InputLayer(input_size, dim)
        self.after_norm = nn.LayerNorm(dim, eps=1e-5)
        self.encoders = nn.ModuleList([ConformerLayer(dim, heads, hidden) for _ in range(blocks)])

    def forward(self, x: Tensor, chunk: int | None = None) -> Tensor:
        """Map (batch, n, input) to (batch, n, dim)."""
        hidden, _ = run_layers(self.encoders, self.embed(x), chunk)
        result: Tensor = self.after_norm(hidden)
        return result
