"""Causal layers of the vocoder that run a whole mel or a piece of it with the same code.

A causal convolution needs the last inputs of the piece before: its tail. `Tails` hands each layer
its own and collects the new ones, so that the layers hold weights only. Where a stream starts the
tails are zeros, which is the padding of the whole run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.nn.functional as functional
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize


class Tails:
    """The tails of one forward pass, in the order in which layers ask for them."""

    def __init__(self, previous: Sequence[Tensor] | None) -> None:
        self._previous = previous
        self._asked = 0
        self.collected: list[Tensor] = []

    def join(self, x: Tensor, length: int, *, consumed: int | None = None) -> Tensor:
        """Put the layer's tail, `length` columns, before (batch, channels, columns).

        The next tail ends after `consumed` columns of `x`; what lies beyond is look-ahead that the
        next piece brings again. None consumes all.
        """
        if self._previous is None:
            joined = functional.pad(x, (length, 0))
        else:
            joined = torch.cat([self._previous[self._asked], x], dim=-1)
        self._asked += 1
        end = consumed if consumed is not None else x.shape[-1]
        self.collected.append(joined[..., end : end + length])
        return joined


class CausalConv1d(nn.Conv1d):
    """Convolution over the past: output i sees inputs up to i."""

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, dilation=dilation)
        self.tail = (kernel - 1) * dilation

    def advance(self, x: Tensor, tails: Tails, *, consumed: int | None = None) -> Tensor:
        """Map (batch, channels, columns) to as many columns."""
        if self.tail == 0:
            return cast(Tensor, self(x))
        return cast(Tensor, self(tails.join(x, self.tail, consumed=consumed)))


class UpsampleConv1d(CausalConv1d):
    """Repeats every column `rate` times, then convolves over the past."""

    def __init__(self, inputs: int, outputs: int, kernel: int, rate: int) -> None:
        super().__init__(inputs, outputs, kernel)
        self.rate = rate

    def advance(self, x: Tensor, tails: Tails, *, consumed: int | None = None) -> Tensor:
        """Map (batch, channels, columns) to `rate` times as many columns."""
        return super().advance(x.repeat_interleave(self.rate, dim=-1), tails, consumed=consumed)


def weight_normed(layer: nn.Conv1d) -> Any:
    """Split the weight into direction and magnitude, under the official names."""
    return parametrizations.weight_norm(layer)


def fold_weight_norm(module: nn.Module) -> None:
    """Replace every split weight by its product: for serving, where it never changes."""
    for layer in module.modules():
        if parametrize.is_parametrized(layer, "weight"):
            parametrize.remove_parametrizations(layer, "weight")


class _SnakeFunction(torch.autograd.Function):
    """Snake with a hand-written derivative, which needs one saved tensor instead of five."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, alpha: Tensor) -> Tensor:
        ctx.save_for_backward(x, alpha)
        return _snake(x, alpha)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        x, alpha = ctx.saved_tensors
        gradient = gradients[0]
        slope = (2 * alpha * x).sin()
        inverse = 1 / (alpha + 1e-9)
        to_alpha = gradient * (x * slope * inverse - ((alpha * x).sin() * inverse).square())
        return gradient * (1 + alpha * inverse * slope), to_alpha.sum(dim=(0, 2), keepdim=True)


def _snake(x: Tensor, alpha: Tensor) -> Tensor:
    return torch.addcmul(x, (x * alpha).sin_().square_(), 1 / (alpha + 1e-9))


class Snake(nn.Module):
    """x + sin²(alpha·x) / alpha with one alpha a channel (arXiv 2006.08195)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, channels, columns) to the same shape."""
        alpha = self.alpha[None, :, None]
        if torch.is_grad_enabled():
            return cast(Tensor, _SnakeFunction.apply(x, alpha))  # type: ignore[no-untyped-call]
        return _snake(x, alpha)


class ResBlock(nn.Module):
    """Pairs of dilated and plain causal convolutions, each pair with a residual."""

    def __init__(self, channels: int, kernel: int, dilations: Sequence[int]) -> None:
        super().__init__()
        self.convs1 = nn.ModuleList(
            [weight_normed(CausalConv1d(channels, channels, kernel, d)) for d in dilations]
        )
        self.convs2 = nn.ModuleList(
            [weight_normed(CausalConv1d(channels, channels, kernel)) for _ in dilations]
        )
        self.activations1 = nn.ModuleList([Snake(channels) for _ in dilations])
        self.activations2 = nn.ModuleList([Snake(channels) for _ in dilations])

    def advance(self, x: Tensor, tails: Tails) -> Tensor:
        """Map (batch, channels, columns) to the same shape."""
        layers = zip(self.convs1, self.convs2, self.activations1, self.activations2, strict=True)
        for conv1, conv2, snake1, snake2 in layers:
            hidden = cast(CausalConv1d, conv1).advance(snake1(x), tails)
            x = x + cast(CausalConv1d, conv2).advance(snake2(hidden), tails)
        return x
