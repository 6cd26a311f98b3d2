"""The layer that lets each speech token see the next few before the mel is planned."""

from __future__ import annotations

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from antiphon.engine.checkpoint.config import PreLookaheadConfig


class PreLookahead(nn.Module):
    """Two convolutions with a residual: one looks right, the second looks left.

    An output token depends on the 2 tokens before it and `right_context` after it (CosyVoice 2,
    arXiv 2412.10117, section 2.3), which is all that streaming has to remember.
    """

    def __init__(self, config: PreLookaheadConfig) -> None:
        super().__init__()
        self.right_context = config.pre_lookahead_len
        self.conv1 = nn.Conv1d(config.in_channels, config.channels, config.pre_lookahead_len + 1)
        self.conv2 = nn.Conv1d(config.channels, config.in_channels, 3)

    @property
    def left_context(self) -> int:
        """Tokens before the first output that are needed to compute it."""
        return self.conv2.kernel_size[0] - 1

    def forward(self, tokens: Tensor, context: Tensor | None = None, history: int = 0) -> Tensor:
        """Map (batch, history + tokens, channels) to (batch, tokens, channels).

        `context` holds the embeddings of the `right_context` tokens that follow; without it the
        speech ends here and zeros follow. The first `history` tokens (0 to `left_context`) were
        mapped before and serve as left context only; where speech starts there are none.
        """
        if context is None:
            context = tokens.new_zeros(tokens.shape[0], self.right_context, tokens.shape[2])
        looking_right = torch.cat([tokens, context], dim=1).transpose(1, 2)
        hidden = functional.leaky_relu(self.conv1(looking_right))
        hidden = functional.pad(hidden, (self.left_context - history, 0))
        mapped: Tensor = self.conv2(hidden).transpose(1, 2)
        return mapped + tokens[:, history:]
