"""The estimator for streaming: new frames only, against the cached keys and values of old ones.

Same weights and numbers as `dit.py`, arranged for speed: query, key and value in one product,
modulations of all flow times computed once, what does not change between the calls of a solution
projected once, frames of all rows in one matrix, and every buffer and view of a batch shape made
once (see `workspace.py`): at nano size the views cost as much as the arithmetic. A batch holds rows
of any session, each at its own solver step.
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
from antiphon.engine.flow.workspace import Workspace, Workspaces

TAIL = POSITION_KERNEL - 1
Vectors = tuple[Tensor, ...]
"""Shift, scale and gate of attention, then of the rest; or scale and shift before the output."""


@dataclass(frozen=True, slots=True, eq=False)
class Modulations:
    """Shifts, scales (1 added) and gates of every layer for each call of a plan."""

    layers: Tensor
    """(calls, layers, 6, dim)"""
    last: Tensor
    """(calls, 2, dim)"""
    vectors: tuple[tuple[Vectors, ...], ...]
    """The same as (dim,) vectors: by call, then by layer, the last entry being `last`'s."""


@dataclass(frozen=True, slots=True, eq=False)
class StepBatch:
    """One estimator call. Rows are independent; frames beyond a row's length are ignored."""

    x: Tensor
    """(solutions, frames, mel) noisy mel; the guidance rows of a solution see the same."""
    rows: Tensor | None
    """(rows,) the solution of each row; None where there is only one."""
    base: Tensor
    """(rows, frames, dim) what condition, plan and speaker add to the input projection."""
    rotation: Tensor
    """(rows or 1, frames, 1, dim_head / 2) complex: position of each frame."""
    modulation: Sequence[Vectors]
    """For each layer and the output: (dim,) where all rows share the time, else (rows, 1, dim)."""
    tails: Tensor
    """(rows, 2, 30, dim): inputs of both position convolutions before the first frame."""
    table: Tensor
    """(rows, chunks) pages that each row sees, its own new one last; then page 0 as padding."""
    own_pages: Tensor
    """(rows,) page that each row writes."""
    keys: int
    """Keys that a row attends to at most."""
    mask: Tensor | None
    """(rows, 1, 1, keys), True on what a row may see; None where every row sees all."""


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    """Weights as (inputs, outputs), which is what `addmm` multiplies by."""

    qkv: tuple[Tensor, Tensor]
    out: tuple[Tensor, Tensor]
    up: tuple[Tensor, Tensor]
    down: tuple[Tensor, Tensor]


class CachedDiT:
    """A prepared copy of an estimator's weights."""

    def __init__(self, dit: DiT, dtype: torch.dtype = torch.float32) -> None:
        """Prepare for a precision. Mel, solver and input projection stay in float32."""
        self.config = dit.config
        self.dtype = dtype
        self._dit = dit
        projection = dit.input_embed.proj
        mel = dit.config.mel_dim
        self._x_weight = projection.weight[:, :mel].detach().t().contiguous()
        self._base_weight = projection.weight[:, mel:].detach().contiguous()
        self._base_bias = cast(Tensor, projection.bias).detach()
        embed = dit.input_embed.conv_pos_embed
        self._convs = [_flat_conv(cast(nn.Conv1d, c[0]), dtype) for c in (embed.conv1, embed.conv2)]
        self._layers = [_prepare(cast(DiTBlock, block), dtype) for block in dit.transformer_blocks]
        self._output = _transposed(dtype, dit.proj_out)
        self._workspaces = Workspaces(self.config.heads, self.config.dim_head)

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
            stacked, last = stacked.to(self.dtype), last.to(self.dtype)
            vectors = tuple(
                (*(tuple(layer.unbind(0)) for layer in stacked[call]), tuple(last[call].unbind(0)))
                for call in range(len(times))
            )
        return Modulations(stacked, last, vectors)

    def rotation(self, start: int, frames: int) -> Tensor:
        """Turns of frames `start` onward: (1, frames, 1, dim_head / 2) complex."""
        frequencies = self._dit.rotary_embed.inv_freq.float()
        positions = torch.arange(start, start + frames, device=frequencies.device).float()
        angles = positions[:, None] * frequencies
        return torch.polar(torch.ones_like(angles), angles)[None, :, None]

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
        rows, frames, dim = batch.base.shape
        projected = torch.matmul(batch.x, self._x_weight)
        if batch.rows is not None:
            projected = projected.index_select(0, batch.rows)
        hidden = (batch.base + projected).to(self.dtype)
        hidden, tails = self._position(hidden, batch.tails)
        space = self.workspace(batch)
        pages = batch.table.flatten()
        flat = hidden.view(-1, dim)
        for index, layer in enumerate(self._layers):
            shift, scale, gate, ff_shift, ff_scale, ff_gate = batch.modulation[index]
            normed = _modulate(flat, scale, shift, rows)
            torch.addmm(layer.qkv[1], normed, layer.qkv[0], out=space.packed)
            mixed = _attend(space, pool.layers[index], pages, batch)
            flat = _gated(flat, gate, torch.addmm(layer.out[1], mixed, layer.out[0]), rows)
            normed = _modulate(flat, ff_scale, ff_shift, rows)
            grown = functional.gelu(
                torch.addmm(layer.up[1], normed, layer.up[0]), approximate="tanh"
            )
            fed = torch.addmm(layer.down[1], grown, layer.down[0])
            flat = _gated(flat, ff_gate, fed, rows)
        scale, shift = batch.modulation[-1]
        weight, bias = self._output
        velocity = torch.addmm(bias, _modulate(flat, scale, shift, rows), weight)
        return velocity.view(rows, frames, -1).float(), tails

    def workspace(self, batch: StepBatch) -> Workspace:
        """Return the buffers that a call of this shape uses."""
        rows, frames = batch.base.shape[:2]
        like = batch.base.new_empty(0, dtype=self.dtype)
        return self._workspaces.get(rows, frames, batch.table.shape[1], batch.keys, like)

    def _position(self, hidden: Tensor, tails: Tensor) -> tuple[Tensor, Tensor]:
        """Add both grouped convolutions over their tails and the new frames."""
        first = torch.cat([tails[:, 0], hidden], dim=1)
        second = torch.cat([tails[:, 1], _position_conv(first, *self._convs[0])], dim=1)
        placed = hidden + _position_conv(second, *self._convs[1])
        return placed, torch.stack([first[:, -TAIL:], second[:, -TAIL:]], dim=1)


def _attend(space: Workspace, cache: Tensor, pages: Tensor, batch: StepBatch) -> Tensor:
    """Attention of one layer over `space.packed`: (rows · frames, inner)."""
    # The rotary embedding reaches the first head of queries and keys only.
    space.turn(batch.rotation)
    cache[:, : space.frames].index_copy_(0, batch.own_pages, space.fresh)
    torch.index_select(cache, 0, pages, out=space.gathered)
    attended = functional.scaled_dot_product_attention(
        space.query, space.key, space.value, attn_mask=batch.mask
    )
    return attended.transpose(1, 2).reshape(space.packed.shape[0], -1)


def _modulate(x: Tensor, scale: Tensor, shift: Tensor, rows: int) -> Tensor:
    """Layer norm of (rows · frames, dim), scaled and shifted.

    One kernel where all rows share the flow time.
    """
    width = (x.shape[-1],)
    if scale.dim() == 1:
        return functional.layer_norm(x, width, scale, shift, NORM_EPSILON)
    normed = functional.layer_norm(x, width, eps=NORM_EPSILON).view(rows, -1, x.shape[-1])
    return torch.addcmul(shift, normed, scale).view_as(x)


def _gated(x: Tensor, gate: Tensor, change: Tensor, rows: int) -> Tensor:
    """x + gate · change, all (rows · frames, dim)."""
    if gate.dim() == 1:
        return torch.addcmul(x, gate, change)
    return torch.addcmul(
        x.view(rows, -1, x.shape[-1]), gate, change.view(rows, -1, x.shape[-1])
    ).view_as(x)


def _position_conv(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """One grouped convolution of (rows, frames, dim) with the frames as an image's columns.

    Channels-last is how the frames lie anyway, and the only layout with a fast kernel here.
    """
    image = x[:, None].permute(0, 3, 1, 2)
    convolved = functional.conv2d(image, weight, bias, groups=POSITION_GROUPS)
    return functional.mish(convolved.permute(0, 2, 3, 1)[:, 0])


def _flat_conv(conv: nn.Conv1d, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    weight = conv.weight.detach()[:, :, None].to(dtype)
    bias = cast(Tensor, conv.bias).detach().to(dtype)
    return weight.contiguous(memory_format=torch.channels_last), bias


def _transposed(dtype: torch.dtype, *layers: nn.Linear) -> tuple[Tensor, Tensor]:
    weight = torch.cat([layer.weight for layer in layers])
    bias = torch.cat([layer.bias for layer in layers])
    return weight.detach().t().to(dtype).contiguous(), bias.detach().to(dtype)


def _prepare(block: DiTBlock, dtype: torch.dtype) -> _Layer:
    attn, feed = block.attn, block.ff.ff
    out, up, down = attn.to_out[0], cast(nn.Sequential, feed[0])[0], feed[2]
    return _Layer(
        _transposed(dtype, attn.to_q, attn.to_k, attn.to_v),
        *(_transposed(dtype, cast(nn.Linear, layer)) for layer in (out, up, down)),
    )
