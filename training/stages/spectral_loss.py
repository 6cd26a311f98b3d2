"""What the vocoder's sound is held against: spectra of the wanted sound."""

import math
from typing import Final

import torch
from torch import Tensor, nn

from antiphon.engine.voice.features import slaney_filters

SAMPLE_RATE: Final = 24000
_TIED_HZ: Final = 4000.0
"""Above it there is more noise than voice, and noise has no phase to be right about."""


class SpectralLoss(nn.Module):
    """Compressed magnitudes at several resolutions, complex spectra of voices, and log-mel."""

    filters: Tensor

    def __init__(self, complex_weight: float) -> None:
        super().__init__()
        self.complex_weight = complex_weight
        self.sizes = (128, 512, 2048)
        for size in self.sizes:
            self.register_buffer(f"window{size}", torch.hann_window(size))
        self.largest_complex = 512
        self.mel_size = 2048
        self.register_buffer("filters", slaney_filters(SAMPLE_RATE, self.mel_size, 80, 0.0, None))

    def forward(
        self, made: Tensor, wanted: Tensor, tied: Tensor
    ) -> tuple[Tensor, dict[str, float]]:
        """(batch, samples) twice; `tied` (batch, frames) is 1 where the target's phase is known.

        A frame of `tied` is as many samples as there are in all, divided by the frames.
        """
        magnitude = made.new_zeros(())
        phase = made.new_zeros(())
        mel = made.new_zeros(())
        for size in self.sizes:
            window = getattr(self, f"window{size}")
            pair = torch.cat([made, wanted]) / 0.07
            spectrum = torch.stft(pair, size, size // 4, window=window, return_complex=True)
            spectrum = spectrum / math.sqrt(size)
            power = spectrum.real.square() + spectrum.imag.square()
            amount = (power + 1e-7).sqrt()
            small = amount.sqrt()
            ours, theirs = small.chunk(2)
            magnitude = (
                magnitude
                + (ours - theirs).abs().mean()
                + 0.25 * (ours.clamp(min=0.05).log() - theirs.clamp(min=0.05).log()).abs().mean()
            )
            if size <= self.largest_complex:
                low = int(_TIED_HZ / SAMPLE_RATE * size)
                turned = (spectrum * (small / amount))[:, :low]
                ours_c, theirs_c = turned.chunk(2)
                gap = torch.view_as_real(ours_c - theirs_c).square().sum(-1).mean(dim=1)
                where = nn.functional.interpolate(tied[:, None], gap.shape[1])[:, 0]
                phase = phase + (gap * where).sum() / where.sum().clamp(min=1)
            if size == self.mel_size:
                mels = (self.filters @ (amount * math.sqrt(size) * 0.07)).clamp(min=1e-4).log()
                mel = (mels[: len(made)] - mels[len(made) :]).abs().mean()
        count = len(self.sizes)
        total = magnitude / count + self.complex_weight * phase / 2 + mel
        figures = {
            "magnitude": float(magnitude.detach()) / count,
            "complex": float(phase.detach()) / 2,
            "mel": float(mel.detach()),
        }
        return total, figures
