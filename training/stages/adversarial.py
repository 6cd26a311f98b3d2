"""HiFT's second stage: discriminators over periods and over spectra.

Least-squares adversarial loss and feature matching (HiFi-GAN, arXiv 2010.05646), discriminators on
several resolutions of the spectrum (UnivNet, arXiv 2106.07889), beside the spectral loss.
"""

import itertools

import numpy as np
import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from antiphon.engine.voice.quality import dnsmos
from antiphon.engine.voice.resample import resample
from antiphon.training.loop import Draw, apply_gradients
from antiphon.training.stages.spectral_loss import SAMPLE_RATE
from antiphon.training.stages.vocoder import VocoderStage, generator_optimizers

PERIODS = (2, 3, 5, 7)
RESOLUTIONS = (256, 512, 1024)
ADVERSARIAL_WEIGHT = 0.3
FEATURE_WEIGHT = 0.6
SLOPE = 0.1
JUDGES_LR = 8e-4
OPINION_RATE = 16000
OPINIONS = 12
"""Held-out sentences that DNSMOS hears at every evaluation."""


class _Layers(nn.Module):
    """Convolutions whose activations are all handed out."""

    def __init__(self, layers: list[nn.Conv2d]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> list[Tensor]:
        kept = []
        for layer in self.layers[:-1]:
            x = functional.leaky_relu(layer(x), SLOPE)
            kept.append(x)
        kept.append(self.layers[-1](x))
        return kept


class PeriodDiscriminator(nn.Module):
    """Sees the wave folded into rows of one period's length."""

    def __init__(self, period: int, width: int = 12) -> None:
        super().__init__()
        self.period = period
        sizes = [1, width, 2 * width, 4 * width, 4 * width]
        layers = [nn.Conv2d(a, b, (5, 1), (3, 1), (2, 0)) for a, b in itertools.pairwise(sizes)]
        self.net = _Layers([*layers, nn.Conv2d(sizes[-1], 1, (3, 1), 1, (1, 0))])

    def forward(self, samples: Tensor) -> list[Tensor]:
        """(batch, samples) to activations; the last is the verdict."""
        rows = samples.shape[1] // self.period
        folded = samples[:, : rows * self.period].reshape(-1, 1, rows, self.period)
        activations: list[Tensor] = self.net(folded)
        return activations


class SpectrumDiscriminator(nn.Module):
    """Sees log magnitudes at one resolution."""

    window: Tensor

    def __init__(self, size: int, width: int = 12) -> None:
        super().__init__()
        self.size = size
        self.register_buffer("window", torch.hann_window(size), persistent=False)
        # Strides from the first layer on: the full resolution alone would cost as much as the rest.
        sizes = [1, *[width] * 4]
        layers = [nn.Conv2d(a, b, (3, 5), (1, 2), (1, 2)) for a, b in itertools.pairwise(sizes)]
        self.net = _Layers([*layers, nn.Conv2d(width, 1, 3, padding=1)])

    def forward(self, samples: Tensor) -> list[Tensor]:
        """(batch, samples) to activations; the last is the verdict."""
        spectrum = torch.stft(
            samples, self.size, self.size // 4, window=self.window, return_complex=True
        )
        logs = (spectrum.abs() + 1e-4).log().transpose(1, 2)[:, None]
        activations: list[Tensor] = self.net(logs)
        return activations


class Discriminators(nn.Module):
    """All of them."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList(
            [*map(PeriodDiscriminator, PERIODS), *map(SpectrumDiscriminator, RESOLUTIONS)]
        )

    def forward(self, samples: Tensor) -> list[list[Tensor]]:
        """(batch, samples) at about unit peak to activations of each."""
        return [part(samples / 0.2) for part in self.parts]


class AdversarialStage:
    """Continues the spectral stage's vocoder against discriminators."""

    def __init__(self, vocoder: VocoderStage, weights: dict[str, Tensor], *, seed: int = 1) -> None:
        torch.manual_seed(seed)
        self.vocoder = vocoder
        vocoder.generator.load_state_dict(weights)
        self.judges = Discriminators()
        self._model = nn.ModuleDict({"generator": vocoder.generator, "judges": self.judges})

    @property
    def model(self) -> nn.Module:
        """Generator and discriminators, under `generator.` and `judges.`."""
        return self._model

    def optimizers(self, peak_lr: float) -> list[torch.optim.Optimizer]:
        """The generator's as in the spectral stage, then the discriminators'."""
        makers = generator_optimizers(self.vocoder.generator, peak_lr)
        judges = torch.optim.AdamW(self.judges.parameters(), lr=JUDGES_LR, betas=(0.8, 0.99))
        return [*makers, judges]

    def step(self, draw: Draw, optimizers: list[torch.optim.Optimizer]) -> dict[str, float]:
        """The discriminators learn, then the generator."""
        made, wanted, tied = self.vocoder.render(self.vocoder.crops(draw))
        real, fake = self.judges(wanted), self.judges(made.detach())
        judged = sum(
            (
                (r[-1] - 1).square().mean() + f[-1].square().mean()
                for r, f in zip(real, fake, strict=True)
            ),
            made.new_zeros(()),
        )
        apply_gradients(judged, self.judges, optimizers[-1:], 1.0)
        spectral, figures = self.vocoder.loss(made, wanted, tied)
        self.judges.requires_grad_(False)
        fake = self.judges(made)
        self.judges.requires_grad_(True)
        fooled, matched = made.new_zeros(()), made.new_zeros(())
        # What the discriminators saw in the real sound one update ago will do: it saves a pass.
        for f, r in zip(fake, real, strict=True):
            fooled = fooled + (f[-1] - 1).square().mean()
            for ours, theirs in zip(f[:-1], r[:-1], strict=True):
                matched = matched + (ours - theirs.detach()).abs().mean() / (len(f) - 1)
        total = spectral + (ADVERSARIAL_WEIGHT * fooled + FEATURE_WEIGHT * matched) / len(fake)
        norm = apply_gradients(total, self.vocoder.generator, optimizers[:-1], 1.0)
        return {
            **figures,
            "judges": float(judged.detach()) / len(fake),
            "fooled": float(fooled.detach()) / len(fake),
            "matched": float(matched.detach()) / len(fake),
            "gradient": norm,
        }

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """The spectral figures, which get a little worse, and the opinion score, which decides."""
        figures = self.vocoder.evaluate()
        opinion = dnsmos()
        if opinion is None:
            raise RuntimeError("The adversarial stage needs the package speechmos to judge itself.")
        heard = self.vocoder.parts.validation[:OPINIONS]
        scores = [opinion(resample(self.vocoder.copy(i), SAMPLE_RATE, OPINION_RATE)) for i in heard]
        mean = float(np.mean(scores))
        return {**figures, "opinion": mean, "score": -mean}
