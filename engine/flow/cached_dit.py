"""The estimator for streaming: new frames only, against the cached keys and values of old ones.

Same weights and numbers as `dit.py`, arranged for speed: query, key and value in one product,
modulations of all flow times computed once, what does not change between the calls of a solution
projected once. A batch holds rows of any session, each at its own solver step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from antiphon.engine.flow.cache import PagePool
from antiphon.engine.flow.dit import NORM_EPSILON, POSITION_GROUPS, POSITION_KERNEL, DiT, DiTBlock
from antiphon.engine.flow.flow_matching import SolverPlan

TAIL = POSITION_KERNEL - 1


@dataclass(frozen=True, slots=True, eq=False)
class Modulations:
    """Shifts, scales (1 added) and gates of every layer for each call of a plan."""

    layers: Tensor
    """(calls, layers, 6, dim): shift, scale, gate of attention; shift, scale, gate of the rest."""
    last: Tensor
    """(calls, 2, dim): scale and shift before the output."""


@dataclass(frozen=True, slots=True, eq=False)
class StepBatch:
    """One estimator call. Rows are independent; frames beyond a row's length are ignored."""

    x: Tensor
    """(rows, frames, mel) noisy mel."""
    base: Tensor
    """(rows, frames, dim) what condition, plan and speaker add to the input projection."""
    rotation: Tensor
    """(rows or 1, frames, dim_head / 2) complex: position of each frame."""
    layer_modulation: Tensor
    """(rows or 1, layers, 6, dim); one row where all rows share it."""
    last_modulation: Tensor
    """(rows or 1, 2, dim)."""
    tails: Tensor
    """(rows, 2, dim, 30): inputs of both position convolutions before the first frame."""
    table: Tensor
    """(rows, chunks) pages that each row sees, its own new one last; then page 0 as padding."""
    own_pages: Tensor
    """(rows,) page that each row writes."""
    seen: Sequence[int]
    """Keys visible to each row: its context and its own frames."""


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    qkv_weight: Tensor
    qkv_bias: Tensor
    out_weight: Tensor
    out_bias: Tensor
    up_weight: Tensor
    up_bias: Tensor
    down_weight: Tensor
    down_bias: Tensor


class CachedDiT:
    """A prepared copy of an estimator's weights."""

    def __init__(self, dit: DiT) -> None:
        self.config = dit.config
        self._dit = dit
        projection = dit.input_embed.proj
        mel, self._dim = dit.config.mel_dim, dit.config.dim
        self._x_weight = projection.weight[:, :mel].detach().contiguous()
        self._base_weight = projection.weight[:, mel:].detach().contiguous()
        self._base_bias = cast(Tensor, projection.bias).detach()
        embed = dit.input_embed.conv_pos_embed
        convs = [cast(nn.Conv1d, conv[0]) for conv in (embed.conv1, embed.conv2)]
        self._convs = tuple(p.detach() for c in convs for p in (c.weight, cast(Tensor, c.bias)))
        self._layers = [_prepare(cast(DiTBlock, block)) for block in dit.transformer_blocks]

    def modulations(self, plan: SolverPlan) -> Modulations:
        """Compute the modulations of every call of a plan."""
        device = self._x_weight.device
        times = torch.tensor([call.time for call in plan.evaluations], device=device)
        with torch.inference_mode():
            embedded = self._dit.time_embed(times)
            layers = [
                torch.cat(cast(DiTBlock, block).attn_norm.modulation(embedded), dim=1)
                for block in self._dit.transformer_blocks
            ]
            stacked = torch.stack(layers, dim=1)
            stacked[:, :, (1, 4)] += 1
            last = torch.cat(self._dit.norm_out.modulation(embedded), dim=1)
            last[:, 0] += 1
        return Modulations(stacked, last)

    def rotation(self, start: int, frames: int) -> Tensor:
        """Turns of frames `start` onward: (1, frames, dim_head / 2) complex."""
        frequencies = self._dit.rotary_embed.inv_freq.float()
        positions = torch.arange(start, start + frames, device=frequencies.device).float()
        angles = positions[:, None] * frequencies
        return torch.polar(torch.ones_like(angles), angles)[None]

    def base(self, cond: Tensor, mu: Tensor, speaker: Tensor, rows: int) -> Tensor:
        """Project what stays the same over a solution: (rows, frames, dim).

        `cond` and `mu` are (frames, mel), `speaker` (mel,). The second, unconditional row sees
        zeros instead.
        """
        known = torch.cat([cond, mu, speaker.expand(len(mu), -1)], dim=-1)
        known = torch.stack([known, torch.zeros_like(known)]) if rows == 2 else known[None]
        return functional.linear(known, self._base_weight, self._base_bias)

    def velocity(self, batch: StepBatch, pool: PagePool) -> tuple[Tensor, Tensor]:
        """Return velocities, (rows, frames, mel), and tails after the last frame.

        Writes the new frames' keys and values into each row's own page.
        """
        hidden = torch.baddbmm(batch.base, batch.x, self._x_weight.t().expand(len(batch.x), -1, -1))
        position, tails = self._position(hidden, batch.tails)
        hidden = hidden + position
        attention = _Attention(batch, pool, self.config.heads, self.config.dim_head)
        shared = batch.layer_modulation.shape[0] == 1
        for index, layer in enumerate(self._layers):
            modulation = batch.layer_modulation[:, index, :, None]
            shift, scale, gate, ff_shift, ff_scale, ff_gate = modulation.unbind(1)
            packed = functional.linear(
                _modulate(hidden, scale, shift, shared), layer.qkv_weight, layer.qkv_bias
            )
            mixed = functional.linear(attention(index, packed), layer.out_weight, layer.out_bias)
            hidden = torch.addcmul(hidden, gate, mixed)
            fed = functional.linear(
                _modulate(hidden, ff_scale, ff_shift, shared), layer.up_weight, layer.up_bias
            )
            fed = functional.linear(
                functional.gelu(fed, approximate="tanh"), layer.down_weight, layer.down_bias
            )
            hidden = torch.addcmul(hidden, ff_gate, fed)
        scale, shift = batch.last_modulation[:, :, None].unbind(1)
        return self._dit.proj_out(_modulate(hidden, scale, shift, shared)), tails

    def _position(self, hidden: Tensor, tails: Tensor) -> tuple[Tensor, Tensor]:
        """Both grouped convolutions over their tails and the new frames."""
        first = torch.cat([tails[:, 0], hidden.transpose(1, 2)], dim=-1)
        second = torch.cat([tails[:, 1], _position_conv(first, *self._convs[:2])], dim=-1)
        last = _position_conv(second, *self._convs[2:])
        after = torch.stack([first[..., -TAIL:], second[..., -TAIL:]], dim=1)
        return last.transpose(1, 2), after


class _Attention:
    """Attention of one call: what all layers share is prepared once."""

    def __init__(self, batch: StepBatch, pool: PagePool, heads: int, dim_head: int) -> None:
        self._batch = batch
        self._pool = pool
        self._heads = heads
        self._dim_head = dim_head
        self._rows, self._frames = batch.x.shape[:2]
        self._pages = batch.table.flatten()
        self._rotation = batch.rotation[:, :, None]
        self._keys = max(batch.seen)
        self._mask: Tensor | None = None
        if min(batch.seen) != self._keys:
            seen = torch.tensor(batch.seen, device=batch.x.device)
            keys = torch.arange(self._keys, device=batch.x.device)
            self._mask = (keys < seen[:, None])[:, None, None]

    def __call__(self, layer: int, packed: Tensor) -> Tensor:
        """(rows, frames, 3 · inner) to (rows, frames, inner)."""
        rows, frames, heads = self._rows, self._frames, self._heads
        split = packed.view(rows, frames, 3, heads, self._dim_head)
        # The rotary embedding reaches the first head of queries and keys only.
        turned = torch.view_as_complex(
            split[:, :, :2, 0].unflatten(-1, (-1, 2))  # type: ignore[no-untyped-call]
        )
        turned.mul_(self._rotation)
        inner = heads * self._dim_head
        cache = self._pool.layers[layer]
        cache[:, :frames].index_copy_(0, self._batch.own_pages, packed[..., inner:])
        seen = cache.index_select(0, self._pages).view(rows, -1, 2, heads, self._dim_head)
        key, value = seen[:, : self._keys].unbind(2)
        attended = functional.scaled_dot_product_attention(
            split[:, :, 0].transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            attn_mask=self._mask,
        )
        return attended.transpose(1, 2).reshape(rows, frames, inner)


def _modulate(x: Tensor, scale: Tensor, shift: Tensor, shared: bool) -> Tensor:
    """Layer norm, scaled and shifted; in one kernel where all rows share the flow time."""
    width = (x.shape[-1],)
    if shared:
        return functional.layer_norm(x, width, scale.view(-1), shift.view(-1), NORM_EPSILON)
    return torch.addcmul(shift, functional.layer_norm(x, width, eps=NORM_EPSILON), scale)


def _position_conv(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return functional.mish(functional.conv1d(x, weight, bias, groups=POSITION_GROUPS))


def _prepare(block: DiTBlock) -> _Layer:
    attn, feed = block.attn, block.ff.ff
    parts = (attn.to_q, attn.to_k, attn.to_v)
    up = cast(nn.Sequential, feed[0])[0]
    rest = cast(tuple[nn.Linear, ...], (attn.to_out[0], up, feed[2]))
    return _Layer(
        torch.cat([part.weight for part in parts]).detach(),
        torch.cat([part.bias for part in parts]).detach(),
        *(tensor.detach() for layer in rest for tensor in (layer.weight, layer.bias)),
    )
