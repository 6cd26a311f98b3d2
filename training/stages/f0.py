"""The vocoder's F0 net: mel in, Hz out, trained alone and merged into `hift.pt`."""

from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from antiphon.engine.checkpoint.config import HiFTConfig
from antiphon.engine.vocoder.f0 import F0Predictor
from antiphon.engine.vocoder.layers import fold_weight_norm
from antiphon.training.data.corpus import Corpus
from antiphon.training.data.features import Mels
from antiphon.training.data.split import Split
from antiphon.training.loop import Draw, apply_gradients, matrices_and_rest

_UNIT = 100.0


class F0Stage:
    """L1 to the teacher's F0 in units of 100 Hz, voiced frames weighted by relative error."""

    def __init__(
        self,
        config: HiFTConfig,
        corpus: Corpus,
        mels: Mels,
        parts: Split,
        *,
        batch: int = 24,
        crop_tokens: int = 28,
        seed: int = 1,
    ) -> None:
        torch.manual_seed(seed)
        self.corpus, self.mels, self.parts = corpus, mels, parts
        self.batch, self.crop = batch, crop_tokens
        self.voiced_above = config.nsf_voiced_threshold
        self._model = F0Predictor(config.f0_predictor)
        fold_weight_norm(self._model)
        with torch.no_grad():
            first = cast(nn.Conv1d, self._model.condnet[0])
            assert first.bias is not None
            first.weight.mul_(0.5)
            first.bias += 6.0 * first.weight.sum(dim=(1, 2))
            self._model.classifier.weight.mul_(_UNIT)
            self._model.classifier.bias.fill_(_UNIT)

    @property
    def model(self) -> nn.Module:
        """The F0 net."""
        return self._model

    def optimizers(self, peak_lr: float) -> list[torch.optim.Optimizer]:
        """Muon for the convolutions; the last layer, whose unit is Hz, learns in its own unit."""
        head = list(self._model.classifier.parameters())
        return [
            *matrices_and_rest(
                self._model.condnet, lambda _, weight: weight.ndim == 3, peak_lr / 2, peak_lr
            ),
            torch.optim.AdamW(head, lr=peak_lr * _UNIT, betas=(0.9, 0.98), weight_decay=0.0),
        ]

    def step(self, draw: Draw, optimizers: list[torch.optim.Optimizer]) -> dict[str, float]:
        """One batch of crops."""
        mel, f0 = self._crops(draw.numpy.choice(self.parts.train, self.batch), draw.numpy)
        mel = mel + torch.randn(mel.shape, generator=draw.torch) * 0.1
        loss, figures = self._loss(mel, f0)
        apply_gradients(loss, self._model, optimizers, 1.0)
        return figures

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Errors on held-out sentences."""
        rng = np.random.default_rng(0)
        chosen = rng.choice(self.parts.validation, min(64, len(self.parts.validation)))
        mel, f0 = self._crops(chosen, rng)
        loss, figures = self._loss(mel, f0)
        return {**figures, "score": float(loss)}

    def _loss(self, mel: Tensor, f0: Tensor) -> tuple[Tensor, dict[str, float]]:
        made = self._model(mel)[:, 6:-4]
        wanted = f0[:, 6:-4]
        voiced = wanted > 0
        error = (made - wanted).abs()
        relative = (error[voiced] / wanted[voiced]).mean()
        silent = (error[~voiced] / _UNIT).mean() if bool((~voiced).any()) else error.new_zeros(())
        wrong = ((made > self.voiced_above) != voiced).float().mean()
        figures = {"relative": float(relative.detach()), "voicing errors": float(wrong)}
        return 3 * relative + silent, figures

    def _crops(self, chosen: np.ndarray, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        mels = np.full((len(chosen), 2 * self.crop, 80), -11.5, np.float32)
        pitch = np.zeros((len(chosen), 2 * self.crop), np.float32)
        for row, index in enumerate(map(int, chosen)):
            length = self.corpus.tokens(index)
            first = int(rng.integers(0, max(1, length - self.crop)))
            count = min(self.crop, length - first)
            mels[row, : 2 * count] = self.mels.get(index, first, count)
            pitch[row, : 2 * count] = self.corpus.f0(index, first, count)
        return torch.from_numpy(mels), torch.from_numpy(pitch)
