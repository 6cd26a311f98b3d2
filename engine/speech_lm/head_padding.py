"""Small heads made large enough for vLLM's attention kernels, with the same results.

The kernels take heads of 32 channels and more in certain sizes; tiny and nano checkpoints have
smaller ones. Zeros are added to heads and hidden state, and three numbers are corrected for them:

- attention scores are divided by the root of the padded head size: queries are scaled up;
- RMS norms divide by the padded hidden size: their weights and epsilon are scaled;
- rotary frequencies are theta^(−2i/head size): theta is raised, so that the first ones stay.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from antiphon.engine.checkpoint.config import Qwen2Config

HEAD_SIZES: Final = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256)
"""Sizes that vLLM's CPU and GPU kernels have."""


@dataclass(frozen=True, slots=True)
class Padding:
    """From a backbone's sizes to padded ones; equal where nothing is to be done."""

    original: Qwen2Config
    padded: Qwen2Config

    @classmethod
    def of(cls, config: Qwen2Config) -> Padding:
        """Choose the next head size that the kernels have."""
        size = next((s for s in HEAD_SIZES if s >= config.head_dim), config.head_dim)
        hidden = size * config.num_attention_heads
        padded = dataclasses.replace(
            config,
            hidden_size=hidden,
            rms_norm_eps=config.rms_norm_eps * config.hidden_size / hidden,
            rope_theta=config.rope_theta ** (size / config.head_dim),
        )
        return cls(config, padded if size != config.head_dim else config)

    def pad(self, key: str, value: Tensor) -> Tensor:
        """Return a weight of the padded model; `key` ends as in the Qwen2 layout."""
        if self.padded is self.original:
            return value
        if "norm" in key:
            scale = (self.original.hidden_size / self.padded.hidden_size) ** 0.5
            return self._hidden(value * scale)
        if "q_proj" in key:
            value = value * (self.padded.head_dim / self.original.head_dim) ** 0.5
        if any(name in key for name in ("q_proj", "k_proj", "v_proj")):
            value = self._heads(value)
            return self._hidden(value) if value.dim() == 2 else value
        if "o_proj" in key:
            return self._hidden(self._heads(value.t())).t()
        if "down_proj" in key:
            return self._hidden(value.t()).t()
        return self._hidden(value)

    def _hidden(self, value: Tensor) -> Tensor:
        """Add zeros to the last dimension, up to the hidden size."""
        return functional.pad(value, (0, self.padded.hidden_size - value.shape[-1]))

    def _heads(self, value: Tensor) -> Tensor:
        """Add zeros to each head along the first dimension.

        Rotation pairs channel i with i + half: each half is padded on its own.
        """
        half, wide = self.original.head_dim // 2, self.padded.head_dim // 2
        parts = value.reshape(-1, half, *value.shape[1:])
        padded = torch.zeros(parts.shape[0], wide, *value.shape[1:])
        padded[:, :half] = parts
        return padded.reshape(-1, *value.shape[1:])
