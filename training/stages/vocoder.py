"""HiFT: spectral losses first, discriminators later.

The corpus ties the phase of every harmonic to the F0 track by the rule of the source module, so the
harmonic part of the target is a function of what the vocoder is given, and a loss on the complex
spectrum has an answer. The network is shown the phase first (`phase_guide`) and the sound then.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from antiphon.engine.checkpoint.config import HiFTConfig
from antiphon.engine.vocoder.layers import fold_weight_norm
from antiphon.training.data.corpus import Corpus
from antiphon.training.data.features import Mels
from antiphon.training.data.hibari import Array
from antiphon.training.data.split import Split
from antiphon.training.loop import Draw, apply_gradients, matrices_and_rest
from antiphon.training.stages.phase_guide import GuidedHiFT, PhaseGuide
from antiphon.training.stages.spectral_loss import SpectralLoss

_LEAD = 3
"""Mel frames at the start of a crop whose left context is missing: not in the loss."""
PHASE_FIRST = 0.04
"""Share of the training in which only the phase is learned."""
ADAM_SHARE = 0.35
"""Learning rate of what is no convolution, against Muon's."""
GUIDE_WEIGHTS = (1.0, 0.2)
"""Of the phase guide beside the spectral loss, at the start and at the end."""


@dataclass(frozen=True)
class Crops:
    """What the vocoder is given. `mel` (batch, frames, 80), `f0` (batch, frames) in Hz."""

    mel: Tensor
    f0: Tensor
    cycles: Tensor
    """(batch,) turns of the fundamental before the crop."""
    noise: Tensor
    """(batch, samples, harmonics)"""
    wanted: Tensor
    """(batch, samples)"""
    tied: Tensor
    """(batch, frames), 1 where the phase of the wanted sound is that of the source."""


def new_vocoder(config: HiFTConfig, seed: int) -> GuidedHiFT:
    """A HiFT ready to learn: folded weights, a saw-tooth source, a quiet start.

    The source holds each harmonic's sine over a frame. Mixed with weights 1/n they make a saw-tooth
    of the phase: one number from which the network can read where in the period a frame begins.
    """
    torch.manual_seed(seed)
    model = GuidedHiFT(config)
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


def generator_optimizers(model: nn.Module, peak_lr: float) -> list[torch.optim.Optimizer]:
    """Muon for the convolutions, AdamW for the rest.

    Muon brings the spectral loss in 250 steps where AdamW alone has it after 1000.
    """

    def is_matrix(name: str, weight: Tensor) -> bool:
        return weight.ndim == 3 and "conv_post" not in name and "heads" not in name

    return matrices_and_rest(model, is_matrix, ADAM_SHARE * peak_lr, peak_lr)


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
        complex_weight: float = 0.5,
        seed: int = 1,
    ) -> None:
        self.config, self.corpus, self.mels, self.parts = config, corpus, mels, parts
        self.batch, self.crop = batch, crop_tokens
        self.generator = new_vocoder(config, seed)
        self.guide = PhaseGuide(config)
        self._model = nn.ModuleDict({"generator": self.generator, "guide": self.guide})
        self.loss = SpectralLoss(complex_weight)
        for parameter in self.generator.f0_predictor.parameters():
            parameter.requires_grad_(False)

    @property
    def model(self) -> nn.Module:
        """`generator.`, whose F0 net is trained by its own stage, and the heads of `guide.`."""
        return self._model

    def optimizers(self, peak_lr: float) -> list[torch.optim.Optimizer]:
        """The generator's, which see to the guide's heads as well."""
        return generator_optimizers(self._model, peak_lr)

    def step(self, draw: Draw, optimizers: list[torch.optim.Optimizer]) -> dict[str, float]:
        """One batch of crops."""
        crops = self.crops(draw)
        if draw.progress < PHASE_FIRST:
            excitation = self._excite(crops)
            columns = self.generator.early_columns(crops.mel, excitation)
            guided = self.guide(columns, crops.f0, crops.cycles)
            norm = apply_gradients(guided, self._model, optimizers, 1.0)
            return {"phase": float(guided.detach()), "gradient": norm}
        made, wanted, tied = self.render(crops)
        total, figures = self.loss(made, wanted, tied)
        guided = self.guide(self.generator.columns, crops.f0, crops.cycles)
        start, end = GUIDE_WEIGHTS
        weight = start + (end - start) * draw.progress
        norm = apply_gradients(total + weight * guided, self._model, optimizers, 1.0)
        return {**figures, "phase": float(guided.detach()), "gradient": norm}

    def crops(self, draw: Draw) -> Crops:
        """Random crops of the training utterances, their mels a little noisy."""
        chosen = draw.numpy.choice(self.parts.train, self.batch)
        return self._crops(chosen, draw.numpy, draw.torch, jitter=0.15)

    def render(self, crops: Crops) -> tuple[Tensor, Tensor, Tensor]:
        """As made and as wanted, (batch, samples), and `tied`, without the crops' ends."""
        made = self.generator.decode(crops.mel, self._excite(crops))
        frames = slice(_LEAD, crops.mel.shape[1] - self.config.conv_pre_look_right)
        kept = slice(480 * frames.start, 480 * frames.stop)
        return made[:, kept], crops.wanted[:, kept], crops.tied[:, frames]

    def _excite(self, crops: Crops) -> Tensor:
        excitation: Tensor = self.generator.m_source(crops.f0, crops.cycles, crops.noise)[0]
        return excitation

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Losses on held-out sentences, the same crops every time."""
        rng = np.random.default_rng(0)
        generator = torch.Generator().manual_seed(0)
        sums: dict[str, float] = {}
        rounds = 6
        for _ in range(rounds):
            chosen = rng.choice(self.parts.validation, 12)
            crops = self._crops(chosen, rng, generator, jitter=0.0)
            _, figures = self.loss(*self.render(crops))
            guided = self.guide(self.generator.columns, crops.f0, crops.cycles)
            figures["phase"] = float(guided)
            for name, value in figures.items():
                sums[name] = sums.get(name, 0.0) + value / rounds
        return {**sums, "score": sums["mel"] + sums["magnitude"]}

    @torch.no_grad()
    def copy(self, index: int) -> Array:
        """An utterance from its own mel and F0, (samples,) at 24 kHz."""
        mel = torch.from_numpy(self.mels.get(index))[None]
        noise = torch.rand(
            1,
            480 * mel.shape[1],
            self.config.nb_harmonics + 1,
            generator=torch.Generator().manual_seed(index),
        )
        samples, _ = self.generator(
            mel, noise, torch.from_numpy(self.corpus.f0(index).copy())[None]
        )
        made: Array = samples[0].numpy()
        return made

    def _crops(
        self,
        chosen: np.ndarray,
        rng: np.random.Generator,
        generator: torch.Generator,
        *,
        jitter: float,
    ) -> Crops:
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
        tied = torch.tensor([float(self.corpus.rows[int(i)]["phase_locked"]) for i in chosen])
        return Crops(
            mel=mels,
            f0=pitch,
            cycles=torch.tensor(cycles, dtype=torch.float64),
            noise=noise,
            wanted=torch.from_numpy(np.stack(samples)),
            tied=tied[:, None] * (pitch > 0),
        )


def _padded(values: np.ndarray, length: int, fill: float) -> np.ndarray:
    if len(values) == length:
        return values
    shape = (length, *values.shape[1:])
    result = np.full(shape, fill, np.float32)
    result[: len(values)] = values
    return result
