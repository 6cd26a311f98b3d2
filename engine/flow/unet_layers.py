"""Layers of the U-Net estimators, and what streaming keeps of them."""

from __future__ import annotations

import math
from typing import cast

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from antiphon.engine.flow.conformer import KeyValues

TIME_SCALE = 1000.0


class Memory:
    """What finished frames left behind in each layer, in the order in which layers ask for it.

    Tails are the last inputs of each causal convolution, keys and values those of each attention.
    `previous` is what an earlier run collected; None where the speech starts.
    """

    def __init__(self, previous: Memory | None = None) -> None:
        self._tails_before = previous.tails if previous else None
        self._seen_before = previous.seen if previous else None
        self.tails: list[Tensor] = []
        self.seen: list[KeyValues] = []

    def join(self, x: Tensor, length: int) -> Tensor:
        """Put a convolution's tail, `length` frames, before (batch, channels, frames)."""
        if self._tails_before is None:
            joined = functional.pad(x, (length, 0))
        else:
            joined = torch.cat([self._tails_before[len(self.tails)], x], dim=-1)
        self.tails.append(joined[..., -length:])
        return joined

    def recall(self, keys: Tensor, values: Tensor) -> KeyValues:
        """Put the keys and values of finished frames before (batch, heads, frames, dim)."""
        if self._seen_before is not None:
            before = self._seen_before[len(self.seen)]
            keys = torch.cat([before.keys, keys], dim=2)
            values = torch.cat([before.values, values], dim=2)
        self.seen.append(KeyValues(keys, values))
        return self.seen[-1]

    def keep(self, first: int, last: int) -> None:
        """Forget frames but the `first` and the `last` ones of every attention's memory."""
        for index, seen in enumerate(self.seen):
            drop = seen.keys.shape[2] - first - last
            if drop > 0:
                self.seen[index] = KeyValues(
                    *(
                        torch.cat([part[:, :, :first], part[:, :, first + drop :]], dim=2)
                        for part in (seen.keys, seen.values)
                    )
                )

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        seen = sum(pair.keys.nbytes + pair.values.nbytes for pair in self.seen)
        return seen + sum(tail.nbytes for tail in self.tails)


class TimeMLP(nn.Module):
    """Two linear layers over the flow time's sinusoids."""

    def __init__(self, frequencies: int, dim: int) -> None:
        super().__init__()
        self.pairs = frequencies // 2
        self.linear_1 = nn.Linear(frequencies, dim)
        self.linear_2 = nn.Linear(dim, dim)

    def forward(self, time: Tensor) -> Tensor:
        """Map times in [0, 1], (batch,), to (batch, dim)."""
        steps = torch.arange(self.pairs, device=time.device, dtype=torch.float32)
        rates = torch.exp(steps * -(math.log(10000.0) / (self.pairs - 1)))
        angles = TIME_SCALE * time[:, None].float() * rates
        waves = torch.cat([angles.sin(), angles.cos()], dim=-1).to(self.linear_1.weight.dtype)
        result: Tensor = self.linear_2(functional.silu(self.linear_1(waves)))
        return result


class CausalConv(nn.Conv1d):
    """Convolution over the past alone."""

    def advance(self, x: Tensor, memory: Memory) -> Tensor:
        """Map (batch, channels, frames), which follow the memory's, to as many frames."""
        return cast(Tensor, self(memory.join(x, self.kernel_size[0] - 1)))


def run_convolution(layer: nn.Module, x: Tensor, memory: Memory) -> Tensor:
    """Run a causal convolution after its tail, any other layer as it is."""
    if isinstance(layer, CausalConv):
        return layer.advance(x, memory)
    return cast(Tensor, layer(x))


class _Transpose(nn.Module):
    """Swap channels and frames inside a sequence of layers."""

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)


def convolution(channels: int, out: int, causal: bool) -> nn.Conv1d:
    """Return a convolution over three frames, the last of which is the newest if `causal`."""
    if causal:
        return CausalConv(channels, out, 3)
    return nn.Conv1d(channels, out, 3, padding=1)


class Block(nn.Module):
    """Convolution, norm and Mish."""

    def __init__(self, channels: int, out: int, causal: bool) -> None:
        super().__init__()
        layer = convolution(channels, out, causal)
        if causal:
            # Group norm would look at frames to come.
            norms = [_Transpose(), nn.LayerNorm(out), _Transpose()]
            self.block = nn.Sequential(layer, *norms, nn.Mish())
        else:
            self.block = nn.Sequential(layer, nn.GroupNorm(8, out), nn.Mish())

    def forward(self, x: Tensor, memory: Memory) -> Tensor:
        """Map (batch, channels, frames) to (batch, out, frames)."""
        first, *others = self.block.children()
        x = run_convolution(first, x, memory)
        for layer in others:
            x = layer(x)
        return x


class ResnetBlock(nn.Module):
    """Two blocks with the flow time added between them, beside a residual path."""

    def __init__(self, channels: int, out: int, time_dim: int, causal: bool) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Mish(), nn.Linear(time_dim, out))
        self.block1 = Block(channels, out, causal)
        self.block2 = Block(out, out, causal)
        self.res_conv = nn.Conv1d(channels, out, 1)

    def forward(self, x: Tensor, time: Tensor, memory: Memory) -> Tensor:
        """Map (batch, channels, frames) to (batch, out, frames)."""
        hidden = self.block1(x, memory) + self.mlp(time)[..., None]
        result: Tensor = self.block2(hidden, memory) + self.res_conv(x)
        return result


class Attention(nn.Module):
    """Multi-head attention without positions: the convolutions give them."""

    def __init__(self, dim: int, heads: int, dim_head: int) -> None:
        super().__init__()
        self.heads = heads
        inner = heads * dim_head
        self.to_q = nn.Linear(dim, inner, bias=False)
        self.to_k = nn.Linear(dim, inner, bias=False)
        self.to_v = nn.Linear(dim, inner, bias=False)
        self.to_out = nn.ModuleList([nn.Linear(inner, dim)])

    def forward(self, x: Tensor, mask: Tensor | None, memory: Memory) -> Tensor:
        """Map (batch, frames, dim); `mask` is True where a frame (row) may see one (column)."""
        query, key, value = (
            layer(x).view(*x.shape[:2], self.heads, -1).transpose(1, 2)
            for layer in (self.to_q, self.to_k, self.to_v)
        )
        past = memory.recall(key, value)
        seen = functional.scaled_dot_product_attention(
            query, past.keys, past.values, attn_mask=mask
        )
        result: Tensor = self.to_out[0](seen.transpose(1, 2).flatten(2))
        return result


class _Projection(nn.Module):
    """Linear layer and exact GELU, under the name `proj`."""

    def __init__(self, dim: int, hidden: int) -> None:
        super().__init__()
        self.proj = nn.Linear(dim, hidden)

    def forward(self, x: Tensor) -> Tensor:
        return functional.gelu(self.proj(x))


class FeedForward(nn.Module):
    """Two linear layers with GELU between them, four times as wide."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.net = nn.ModuleList(
            [_Projection(dim, 4 * dim), nn.Identity(), nn.Linear(4 * dim, dim)]
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, frames, dim) to the same shape."""
        result: Tensor = self.net[2](self.net[0](x))
        return result


class TransformerBlock(nn.Module):
    """Attention and feed-forward behind their norms."""

    def __init__(self, dim: int, heads: int, dim_head: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn1 = Attention(dim, heads, dim_head)
        self.norm3 = nn.LayerNorm(dim)
        self.ff = FeedForward(dim)

    def forward(self, x: Tensor, mask: Tensor | None, memory: Memory) -> Tensor:
        """Map (batch, frames, dim) to the same shape."""
        x = x + self.attn1(self.norm1(x), mask, memory)
        result: Tensor = x + self.ff(self.norm3(x))
        return result


class Downsample(nn.Module):
    """Halves the frame rate."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, channels, frames) to half as many frames, rounded up."""
        result: Tensor = self.conv(x)
        return result


class Upsample(nn.Module):
    """Doubles the frame rate."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose1d(channels, channels, 4, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, channels, frames) to twice as many frames."""
        result: Tensor = self.conv(x)
        return result
