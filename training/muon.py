"""Muon in float32, matrices of one shape orthogonalised together.

torch's own Muon works in bfloat16, which a CPU without bfloat16 units runs sixty times slower than
the whole rest of a training step.
"""

from collections.abc import Callable, Iterable
from typing import Final

import torch
from torch import Tensor, nn

_COEFFICIENTS: Final = (3.4445, -4.7750, 2.0315)
_STEPS: Final = 4


class Muon(torch.optim.Optimizer):
    """Momentum whose update is replaced by the nearest orthogonal matrix.

    Source: Jordan et al. 2024, "Muon: an optimizer for hidden layers"; the update is scaled to the
    root mean square of AdamW's (Liu et al., arXiv 2502.16982), so that both share a learning rate.
    Convolution kernels count as matrices of (outputs, inputs x kernel).
    """

    def __init__(
        self,
        weights: Iterable[nn.Parameter],
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(
            list(weights), {"lr": lr, "momentum": momentum, "weight_decay": weight_decay}
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every weight that has a gradient."""
        assert closure is None
        for group in self.param_groups:
            shapes: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = {}
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(weight)
                state["momentum"].lerp_(weight.grad, 1 - group["momentum"])
                ahead = weight.grad.lerp(state["momentum"], group["momentum"]).flatten(1)
                shapes.setdefault((ahead.shape[0], ahead.shape[1]), []).append((weight, ahead))
            for shape, pairs in shapes.items():
                updates = orthogonalize(torch.stack([ahead for _, ahead in pairs]))
                scale = group["lr"] * 0.2 * max(shape) ** 0.5
                for (weight, _), update in zip(pairs, updates, strict=True):
                    weight.mul_(1 - group["lr"] * group["weight_decay"])
                    weight.add_(update.view_as(weight), alpha=-scale)


def orthogonalize(matrices: Tensor) -> Tensor:
    """Push the singular values of (count, rows, columns) towards one by Newton-Schulz steps."""
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.transpose(1, 2) if tall else matrices
    x = x / (x.flatten(1).norm(dim=1)[:, None, None] + 1e-7)
    a, b, c = _COEFFICIENTS
    for _ in range(_STEPS):
        gram = x @ x.transpose(1, 2)
        x = a * x + (b * gram + c * gram @ gram) @ x
    result: Tensor = x.transpose(1, 2) if tall else x
    return result
