"""F0 net of the causal vocoder."""

from __future__ import annotations

from typing import cast

import torch.nn.functional as functional
from torch import Tensor, nn

from antiphon.engine.checkpoint.config import F0PredictorConfig
from antiphon.engine.vocoder.layers import CausalConv1d, Tails, weight_normed

KERNEL = 3
FIRST_KERNEL = 4
LAYERS = 5


class F0Predictor(nn.Module):
    """Five convolutions and a linear layer; the first looks 3 frames ahead, the others back."""

    look_right = FIRST_KERNEL - 1

    def __init__(self, config: F0PredictorConfig) -> None:
        super().__init__()
        width = config.cond_channels
        layers: list[nn.Module] = [
            weight_normed(nn.Conv1d(config.in_channels, width, FIRST_KERNEL)),
            nn.ELU(),
        ]
        for _ in range(LAYERS - 1):
            layers += [weight_normed(CausalConv1d(width, width, KERNEL)), nn.ELU()]
        self.condnet = nn.Sequential(*layers)
        self.classifier = nn.Linear(width, config.num_class)

    def forward(self, mel: Tensor) -> Tensor:
        """F0 in Hz, (batch, frames), of a whole mel (batch, frames, mel), which ends here."""
        return self.advance(functional.pad(mel, (0, 0, 0, self.look_right)), Tails(None))

    def advance(self, mel: Tensor, tails: Tails, *, consumed: int | None = None) -> Tensor:
        """F0 of all but the last 3 frames of (batch, frames, mel), which are look-ahead.

        `consumed` frames are done with; those after them come again with the next piece.
        """
        hidden = self.condnet[1](self.condnet[0](mel.transpose(1, 2)))
        for index in range(2, 2 * LAYERS, 2):
            layer = cast(CausalConv1d, self.condnet[index])
            hidden = self.condnet[index + 1](layer.advance(hidden, tails, consumed=consumed))
        hertz: Tensor = self.classifier(hidden.transpose(1, 2)).squeeze(-1)
        return hertz.abs()
