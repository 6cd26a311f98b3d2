"""Short-time Fourier transform and its inverse as matrix products over pieces of a stream.

Both use a periodic Hann window. At 16 samples a frame a product with the transform's matrix is
cheaper than a call of an FFT, and pieces need no padding rules but the ends'.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as functional
from torch import Tensor, nn


class Spectrum(nn.Module):
    """Analysis and synthesis of (batch, samples) in frames of `n_fft` every `hop` samples."""

    analysis: Tensor
    synthesis: Tensor
    power: Tensor

    def __init__(self, n_fft: int, hop: int) -> None:
        super().__init__()
        self.n_fft = n_fft
        self.hop = hop
        window = torch.hann_window(n_fft, periodic=True, dtype=torch.float64)
        bins = torch.arange(n_fft // 2 + 1, dtype=torch.float64)
        angles = 2 * math.pi / n_fft * torch.outer(torch.arange(n_fft, dtype=torch.float64), bins)
        forward = torch.cat([angles.cos(), -angles.sin()], dim=1) * window[:, None]
        # The first and the last bin stand for themselves, the others also for their mirror image.
        doubled = torch.full((n_fft // 2 + 1,), 2.0, dtype=torch.float64)
        doubled[0] = doubled[-1] = 1.0
        backward = torch.cat([angles.cos() * doubled, -angles.sin() * doubled], dim=1).t()
        self.register_buffer("analysis", forward.float(), persistent=False)
        self.register_buffer("synthesis", (backward / n_fft * window).float(), persistent=False)
        self.register_buffer("power", (window**2).float(), persistent=False)

    def frames(self, samples: Tensor) -> Tensor:
        """All whole frames of (batch, samples): (batch, 2 · bins, frames), real parts first."""
        return (samples.unfold(-1, self.n_fft, self.hop) @ self.analysis).transpose(1, 2)

    def overlap_add(self, spectrum: Tensor, tail: Tensor | None) -> tuple[Tensor, Tensor]:
        """Synthesise (batch, 2 · bins, frames) onto the tail of the piece before.

        Returns two rows stacked on a new first dimension, the windowed sum and the sum of squared
        windows, each (batch, frames · hop + n_fft - hop); only the part beyond the last n_fft - hop
        samples is complete. The second value is that unfinished tail.
        """
        pieces = spectrum.transpose(1, 2) @ self.synthesis
        both = torch.stack([pieces, self.power.expand_as(pieces)])
        summed = self._lay(both)
        if tail is not None:
            summed[..., : tail.shape[-1]] += tail
        return summed, summed[..., -(self.n_fft - self.hop) :]

    def _lay(self, pieces: Tensor) -> Tensor:
        """Sum (…, frames, n_fft) pieces at their places."""
        parts = self.n_fft // self.hop
        quarters = pieces.unflatten(-1, (parts, self.hop))  # type: ignore[no-untyped-call]
        shifted = [
            functional.pad(quarters[..., part, :], (0, 0, part, parts - 1 - part))
            for part in range(parts)
        ]
        return torch.stack(shifted).sum(dim=0).flatten(-2)
