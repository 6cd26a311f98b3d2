"""HiFT: spectral losses first, discriminators later.

The corpus ties the phase of every harmonic to the F0 track by the rule of the source module, so the
harmonic part of the target is a function of what the vocoder is given, and a loss on the complex
spectrum has an answer. It has a small weight: until the network has found the phase (it had not
after 600 steps), that loss only asks for less sound.
"""

import math

import numpy as np
import torch
from torch import Tensor, nn

from antiphon.engine.checkpoint.config import HiFTConfig
from antiphon.engine.vocoder.hift import HiFT
from antiphon.engine.vocoder.layers import fold_weight_norm
from antiphon.engine.voice.features import slaney_filters
from antiphon.training.data.corpus import Corpus
from antiphon.training.data.features import Mels
from antiphon.training.data.split import Split
from antiphon.training.loop import Draw, apply_gradients

_LEAD = 3
"""Mel frames at the start of a crop whose left context is missing: not in the loss."""


class SpectralLoss(nn.Module):
    """Compressed magnitudes and complex spectra at several resolutions, and log-mel."""

    filters: Tensor

    def __init__(self, complex_weight: float) -> None:
        super().__init__()
        self.complex_weight = complex_weight
        self.sizes = (128, 512, 2048)
        for size in self.sizes:
            self.register_buffer(f"window{size}", torch.hann_window(size))
        self.largest_complex = 512
        self.mel_size = 2048
        self.register_buffer("filters", slaney_filters(24000, self.mel_size, 80, 0.0, None))

    def forward(
        self, made: Tensor, wanted: Tensor, locked: Tensor
    ) -> tuple[Tensor, dict[str, float]]:
        """(batch, samples) twice; `locked` (batch,) is 1 where the target's phase is known."""
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
                turned = spectrum * (small / amount)
                ours_c, theirs_c = turned.chunk(2)
                gap = torch.view_as_real(ours_c - theirs_c).square().sum(-1).mean(dim=(1, 2))
                phase = phase + (gap * locked).mean()
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


def new_vocoder(config: HiFTConfig, seed: int) -> HiFT:
    """A HiFT ready to learn: folded weights, a saw-tooth source, a quiet start.

    The source holds each harmonic's sine over a frame. Mixed with weights 1/n they make a saw-tooth
    of the phase: one number from which the network can read where in the period a frame begins.
    """
    torch.manual_seed(seed)
    model = HiFT(config)
    fold_weight_norm(model)
    bins = config.istft_n_fft // 2 + 1
    orders = torch.arange(1, config.nb_harmonics + 2).float()
    with torch.no_grad():
        model.m_source.l_linear.weight.copy_(0.6 / (config.nsf_alpha * orders)[None])
        model.m_source.l_linear.bias.zero_()
        model.conv_post.weight.mul_(0.5)
        model.conv_post.bias[:bins] = torch.linspace(-2.5, -4.5, bins)
        model.conv_post.bias[bins:] = 0.0
        # Log-mels are near -6 +- 2.4: centre and scale them at the first layer.
        model.conv_pre.weight.mul_(0.5)
        model.conv_pre.bias += 6.0 * model.conv_pre.weight.sum(dim=(1, 2))
    return model


class VocoderStage:
    """Spectral stage: mel and true F0 in, the teacher's samples out."""

    def __init__(
        self,
        config: HiFTConfig,
        corpus: Corpus,
        mels: Mels,
        parts: Split,
        *,
        batch: int = 6,
        crop_tokens: int = 16,
        complex_weight: float = 0.1,
        seed: int = 1,
    ) -> None:
        self.config, self.corpus, self.mels, self.parts = config, corpus, mels, parts
        self.batch, self.crop = batch, crop_tokens
        self._model = new_vocoder(config, seed)
        self.loss = SpectralLoss(complex_weight)
        for parameter in self._model.f0_predictor.parameters():
            parameter.requires_grad_(False)

    @property
    def model(self) -> nn.Module:
        """The vocoder; its F0 net is trained by its own stage."""
        return self._model

    def optimizers(self, peak_lr: float) -> list[torch.optim.Optimizer]:
        """AdamW over all weights."""
        weights = [p for p in self._model.parameters() if p.requires_grad]
        return [
            torch.optim.AdamW(
                weights, lr=peak_lr, betas=(0.8, 0.98), weight_decay=0.0, foreach=True
            )
        ]

    def step(self, draw: Draw, optimizers: list[torch.optim.Optimizer]) -> dict[str, float]:
        """One batch of crops."""
        made, wanted, locked = self.render(draw)
        total, figures = self.loss(made, wanted, locked)
        norm = apply_gradients(total, self._model, optimizers, 1.0)
        return {**figures, "gradient": norm}

    def render(self, draw: Draw) -> tuple[Tensor, Tensor, Tensor]:
        """Random crops as made and as wanted, (batch, samples), and whether phases are known."""
        chosen = draw.numpy.choice(self.parts.train, self.batch)
        return self._render(chosen, draw.numpy, draw.torch, jitter=0.15)

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Losses on held-out sentences, the same crops every time."""
        rng = np.random.default_rng(0)
        generator = torch.Generator().manual_seed(0)
        sums: dict[str, float] = {}
        rounds = 6
        for _ in range(rounds):
            chosen = rng.choice(self.parts.validation, 12)
            made, wanted, locked = self._render(chosen, rng, generator, jitter=0.0)
            _, figures = self.loss(made, wanted, locked)
            for name, value in figures.items():
                sums[name] = sums.get(name, 0.0) + value / rounds
        return {**sums, "score": sums["mel"] + sums["magnitude"]}

    def _render(
        self,
        chosen: np.ndarray,
        rng: np.random.Generator,
        generator: torch.Generator,
        *,
        jitter: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        mel, f0, samples, cycles = [], [], [], []
        for index in map(int, chosen):
            length = self.corpus.tokens(index)
            first = int(rng.integers(0, max(1, length - self.crop)))
            count = min(self.crop, length - first)
            before = self.corpus.f0(index, 0, first).astype(np.float64)
            cycles.append(float((before * 0.02).sum() % 1.0))
            mel.append(_padded(self.mels.get(index, first, count), 2 * self.crop, -11.5))
            f0.append(_padded(self.corpus.f0(index, first, count), 2 * self.crop, 0.0))
            samples.append(_padded(self.corpus.samples(index, first, count), 960 * self.crop, 0.0))
        mels = torch.from_numpy(np.stack(mel))
        if jitter:
            spread = torch.rand(len(mels), 1, 1, generator=generator) * jitter
            mels = mels + torch.randn(mels.shape, generator=generator) * spread
        pitch = torch.from_numpy(np.stack(f0))
        total = 960 * self.crop
        noise = torch.rand(len(mels), total, self.config.nb_harmonics + 1, generator=generator)
        start = torch.tensor(cycles, dtype=torch.float64)
        excitation, _ = self._model.m_source(pitch, start, noise)
        made = self._model.decode(mels, excitation)
        kept = slice(480 * _LEAD, total - 480 * self.config.conv_pre_look_right)
        wanted = torch.from_numpy(np.stack(samples))
        locked = torch.tensor([float(self.corpus.rows[int(i)]["phase_locked"]) for i in chosen])
        return made[:, kept], wanted[:, kept], locked


def _padded(values: np.ndarray, length: int, fill: float) -> np.ndarray:
    if len(values) == length:
        return values
    shape = (length, *values.shape[1:])
    result = np.full(shape, fill, np.float32)
    result[: len(values)] = values
    return result
