"""Diffusion transformer: the velocity estimator of CosyVoice 3's flow matching.

Module and parameter names are those of the official checkpoints. This file is the plain form, for
training and as the reference; streaming runs the same weights through `cached_dit.py`.

Sources: DiT blocks with adaptive layer norm (Peebles & Xie, arXiv 2212.09748), input and position
embedding as in F5-TTS (arXiv 2410.06885), chunk-causal attention (CosyVoice 2, arXiv 2412.10117).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from antiphon.engine.checkpoint.config import DiTConfig

TIME_FREQUENCIES = 256
TIME_SCALE = 1000.0
POSITION_KERNEL = 31
POSITION_GROUPS = 16
NORM_EPSILON = 1e-6


class TimestepEmbedding(nn.Module):
    """Sine and cosine of the scaled flow time, through a two-layer perceptron."""

    frequencies: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        half = TIME_FREQUENCIES // 2
        exponents = torch.arange(half).float() * -(math.log(10000.0) / (half - 1))
        self.register_buffer("frequencies", exponents.exp(), persistent=False)
        self.time_mlp = nn.Sequential(
            nn.Linear(TIME_FREQUENCIES, dim), nn.SiLU(), nn.Linear(dim, dim)
        )

    def forward(self, time: Tensor) -> Tensor:
        """Map times in [0, 1], (batch,), to (batch, dim)."""
        angles = TIME_SCALE * time[:, None].float() * self.frequencies[None]
        waves = torch.cat([angles.sin(), angles.cos()], dim=-1)
        embedded: Tensor = self.time_mlp(waves)
        return embedded


class CausalPositionEmbedding(nn.Module):
    """Two grouped convolutions over the past: the only sense of position most heads have."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.conv1 = nn.Sequential(
            nn.Conv1d(dim, dim, POSITION_KERNEL, groups=POSITION_GROUPS), nn.Mish()
        )
        self.conv2 = nn.Sequential(
            nn.Conv1d(dim, dim, POSITION_KERNEL, groups=POSITION_GROUPS), nn.Mish()
        )

    def forward(self, frames: Tensor) -> Tensor:
        """Map (batch, frames, dim) to the same shape; each frame sees itself and 60 before it."""
        hidden = frames.transpose(1, 2)
        hidden = self.conv1(functional.pad(hidden, (POSITION_KERNEL - 1, 0)))
        placed: Tensor = self.conv2(functional.pad(hidden, (POSITION_KERNEL - 1, 0)))
        return placed.transpose(1, 2)


class InputEmbedding(nn.Module):
    """Joins noisy mel, condition, token plan and speaker into the transformer's width."""

    def __init__(self, config: DiTConfig) -> None:
        super().__init__()
        width = 2 * config.mel_dim + config.mu_dim + config.spk_dim
        self.proj = nn.Linear(width, config.dim)
        self.conv_pos_embed = CausalPositionEmbedding(config.dim)

    def forward(self, x: Tensor, cond: Tensor, mu: Tensor, speaker: Tensor) -> Tensor:
        """Map three (batch, frames, mel) and one (batch, mel) to (batch, frames, dim)."""
        speaker = speaker[:, None].expand(-1, x.shape[1], -1)
        hidden: Tensor = self.proj(torch.cat([x, cond, mu, speaker], dim=-1))
        position: Tensor = self.conv_pos_embed(hidden)
        return hidden + position


class RotaryEmbedding(nn.Module):
    """Angles of rotary position embedding (arXiv 2104.09864), interleaved pairs."""

    inv_freq: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        exponents = torch.arange(0, dim, 2).float() / dim
        self.register_buffer("inv_freq", 1.0 / (10000.0**exponents))

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine for each position: (…, dim), every value twice in a row."""
        angles = positions[..., None].float() * self.inv_freq.float()
        return angles.cos().repeat_interleave(2, -1), angles.sin().repeat_interleave(2, -1)


def rotate(channels: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turn neighbouring channel pairs of (…, dim) by the given angles."""
    even, odd = channels[..., 0::2], channels[..., 1::2]
    turned = torch.stack([-odd, even], dim=-1).flatten(-2)
    return channels * cosine + turned * sine


class AdaptiveNorm(nn.Module):
    """Layer norm without own weights; `parts` modulation vectors come from the flow time."""

    def __init__(self, dim: int, parts: int) -> None:
        super().__init__()
        self.parts = parts
        self.linear = nn.Linear(dim, dim * parts)
        self.norm = nn.LayerNorm(dim, elementwise_affine=False, eps=NORM_EPSILON)

    def modulation(self, time: Tensor) -> tuple[Tensor, ...]:
        """Shifts, scales and gates, each (batch, 1, dim)."""
        vectors: Tensor = self.linear(functional.silu(time))[:, None]
        return vectors.chunk(self.parts, dim=-1)


class Attention(nn.Module):
    """Multi-head attention in which the rotary embedding reaches the first head only.

    Upstream turns the packed channels before it splits them into heads, so `dim_head` channels,
    which are head 0, are turned and the other heads are not. Checkpoints were trained so.
    """

    def __init__(self, dim: int, heads: int, dim_head: int) -> None:
        super().__init__()
        self.heads = heads
        self.dim_head = dim_head
        inner = heads * dim_head
        self.to_q = nn.Linear(dim, inner)
        self.to_k = nn.Linear(dim, inner)
        self.to_v = nn.Linear(dim, inner)
        self.to_out = nn.ModuleList([nn.Linear(inner, dim)])

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor], mask: Tensor | None) -> Tensor:
        """Map (batch, frames, dim); `mask` is True where a query (row) may see a key (column)."""
        query = self._turn_first_head(self.to_q(x), angles)
        key = self._turn_first_head(self.to_k(x), angles)
        query, key, value = (
            part.view(*part.shape[:2], self.heads, self.dim_head).transpose(1, 2)
            for part in (query, key, self.to_v(x))
        )
        seen = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        mixed: Tensor = self.to_out[0](seen.transpose(1, 2).flatten(2))
        return mixed

    def _turn_first_head(self, packed: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
        first, rest = packed[..., : self.dim_head], packed[..., self.dim_head :]
        return torch.cat([rotate(first, *angles).to(packed.dtype), rest], dim=-1)


class FeedForward(nn.Module):
    """Two linear layers with a tanh-approximated GELU between them."""

    def __init__(self, dim: int, factor: int, dropout: float) -> None:
        super().__init__()
        inner = nn.Sequential(nn.Linear(dim, dim * factor), nn.GELU(approximate="tanh"))
        self.ff = nn.Sequential(inner, nn.Dropout(dropout), nn.Linear(dim * factor, dim))

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, frames, dim) to the same shape."""
        mapped: Tensor = self.ff(x)
        return mapped


class DiTBlock(nn.Module):
    """Attention and feed-forward, each shifted, scaled and gated by the flow time."""

    def __init__(self, config: DiTConfig, dropout: float) -> None:
        super().__init__()
        self.attn_norm = AdaptiveNorm(config.dim, 6)
        self.attn = Attention(config.dim, config.heads, config.dim_head)
        self.ff_norm = nn.LayerNorm(config.dim, elementwise_affine=False, eps=NORM_EPSILON)
        self.ff = FeedForward(config.dim, config.ff_mult, dropout)

    def forward(
        self, x: Tensor, time: Tensor, angles: tuple[Tensor, Tensor], mask: Tensor | None
    ) -> Tensor:
        """Map (batch, frames, dim) to the same shape."""
        shift, scale, gate, ff_shift, ff_scale, ff_gate = self.attn_norm.modulation(time)
        attended: Tensor = self.attn(self.attn_norm.norm(x) * (1 + scale) + shift, angles, mask)
        x = x + gate * attended
        fed: Tensor = self.ff(self.ff_norm(x) * (1 + ff_scale) + ff_shift)
        return x + ff_gate * fed


class DiT(nn.Module):
    """Velocity of every mel frame at one flow time."""

    def __init__(self, config: DiTConfig, dropout: float = 0.0) -> None:
        super().__init__()
        self.config = config
        self.time_embed = TimestepEmbedding(config.dim)
        self.input_embed = InputEmbedding(config)
        self.rotary_embed = RotaryEmbedding(config.dim_head)
        self.transformer_blocks = nn.ModuleList(
            [DiTBlock(config, dropout) for _ in range(config.depth)]
        )
        self.norm_out = AdaptiveNorm(config.dim, 2)
        self.proj_out = nn.Linear(config.dim, config.out_channels)

    def forward(
        self,
        x: Tensor,
        mu: Tensor,
        time: Tensor,
        speaker: Tensor,
        cond: Tensor,
        *,
        mask: Tensor | None = None,
        chunked: bool | Tensor = False,
    ) -> Tensor:
        """Return the velocity, (batch, frames, mel).

        `x`, `mu` and `cond` are (batch, frames, mel), `speaker` is (batch, mel), `time` (batch,),
        `mask` (batch, frames) with True on real frames, which come first. `chunked`, for all rows
        or as (batch,) booleans for each, limits attention to the end of a frame's own block.
        """
        positions = torch.arange(x.shape[1], device=x.device)
        angles = self.rotary_embed(positions)
        visible = self._visible(positions, mask, chunked)
        embedded_time = self.time_embed(time)
        hidden = self.input_embed(x, cond, mu, speaker)
        for block in self.transformer_blocks:
            hidden = block(hidden, embedded_time, angles, visible)
        scale, shift = self.norm_out.modulation(embedded_time)
        velocity: Tensor = self.proj_out(self.norm_out.norm(hidden) * (1 + scale) + shift)
        return velocity if mask is None else velocity * mask[..., None]

    def _visible(
        self, positions: Tensor, mask: Tensor | None, chunked: bool | Tensor
    ) -> Tensor | None:
        """Attention mask (batch or 1, 1, frames, frames); None where everything is visible."""
        visible = None if mask is None else mask[:, None, None, :]
        if isinstance(chunked, Tensor) or chunked:
            size = self.config.static_chunk_size
            block_end = (positions // size + 1) * size
            blocks = (positions[None, :] < block_end[:, None])[None, None]
            if isinstance(chunked, Tensor):
                blocks = blocks | ~chunked[:, None, None, None]
            visible = blocks if visible is None else visible & blocks
        return visible
