"""Speech tokenizer: a small recogniser of phone and pitch level, 25 times a second.

Whisper's log-mel in, the codes of `training.data.codes` out. The start flag is not learned: a token
starts a phone where the phone differs from the one before.
"""

import numpy as np
import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from antiphon.engine.voice.features import WHISPER_RATE, whisper_log_mel
from antiphon.engine.voice.resample import resample
from antiphon.training.data.corpus import Corpus
from antiphon.training.data.hibari import Array
from antiphon.training.data.phones import PHONES
from antiphon.training.data.split import Split
from antiphon.training.loop import Draw, apply_gradients, matrices_and_rest

MELS = 128
LEVEL_WEIGHT = 0.4
LEVELS = 3


class Recogniser(nn.Module):
    """(batch, 128, frames at 100 Hz) to phone and level logits, (batch, ceil(frames / 4), 43)."""

    def __init__(self, width: int = 160, blocks: int = 5) -> None:
        super().__init__()
        self.first = nn.Conv1d(MELS, width, 3, stride=2, padding=1)
        self.second = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.depthwise = nn.ModuleList(
            nn.Conv1d(width, width, 7, padding=3, groups=width) for _ in range(blocks)
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(blocks))
        self.widen = nn.ModuleList(nn.Conv1d(width, 3 * width, 1) for _ in range(blocks))
        self.narrow = nn.ModuleList(nn.Conv1d(3 * width, width, 1) for _ in range(blocks))
        self.head = nn.Conv1d(width, len(PHONES) + LEVELS, 1)

    def forward(self, feats: Tensor) -> Tensor:
        """Logits; the features' mean over time is removed first."""
        hidden = feats - feats.mean(-1, keepdim=True)
        hidden = self.second(self.first(hidden).relu()).relu()
        for depth, norm, widen, narrow in zip(
            self.depthwise, self.norms, self.widen, self.narrow, strict=True
        ):
            hidden = hidden + narrow(widen(norm(depth(hidden))).relu())
        logits: Tensor = self.head(hidden)
        return logits.transpose(1, 2)


def features(samples: Array) -> Tensor:
    """Whisper's log-mel of 24 kHz samples, (128, frames)."""
    return whisper_log_mel(resample(samples, 24_000, WHISPER_RATE), MELS)


class TokenizerStage:
    """Cross-entropy on the 40 phones and, with less weight, on the three pitch levels."""

    def __init__(
        self, corpus: Corpus, parts: Split, *, batch: int = 16, crop_tokens: int = 64, seed: int = 1
    ) -> None:
        torch.manual_seed(seed)
        self.corpus, self.parts = corpus, parts
        self.batch, self.crop = batch, crop_tokens
        self._model = Recogniser()

    @property
    def model(self) -> nn.Module:
        """The recogniser."""
        return self._model

    def optimizers(self, peak_lr: float) -> list[torch.optim.Optimizer]:
        """Muon for the convolutions that mix channels, AdamW for the rest."""

        def is_matrix(name: str, weight: Tensor) -> bool:
            mixes = not name.startswith(("depthwise.", "head."))
            return weight.ndim == 3 and mixes

        return matrices_and_rest(self._model, is_matrix, peak_lr, 2 * peak_lr)

    def step(self, draw: Draw, optimizers: list[torch.optim.Optimizer]) -> dict[str, float]:
        """One batch of crops with a little noise and a random gain."""
        chosen = draw.numpy.choice(self.parts.train, self.batch)
        loss, figures = self._loss([int(i) for i in chosen], draw.numpy, noise=0.003)
        apply_gradients(loss, self._model, optimizers, 1.0)
        return figures

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Accuracy on held-out sentences and on held-out speakers."""
        rng = np.random.default_rng(0)
        loss, figures = self._loss(list(self.parts.validation[:48]), rng, noise=0.0)
        _, unseen = self._loss(list(self.parts.unseen[:48]), rng, noise=0.0)
        return {**figures, "unseen phone": unseen["phone"], "score": float(loss)}

    def _loss(
        self, chosen: list[int], rng: np.random.Generator, *, noise: float
    ) -> tuple[Tensor, dict[str, float]]:
        feats, codes = [], []
        for index in chosen:
            length = self.corpus.tokens(index)
            first = int(rng.integers(0, max(1, length - self.crop)))
            count = min(self.crop, length - first)
            samples = self.corpus.samples(index, first, count)
            target = np.full(self.crop, -1, np.int64)
            target[:count] = self.corpus.codes(index)[first : first + count]
            padded = np.zeros(960 * self.crop, np.float32)
            padded[: len(samples)] = samples * float(np.exp(rng.uniform(-0.7, 0.7)))
            padded += rng.standard_normal(len(padded)).astype(np.float32) * noise * rng.random()
            feats.append(features(padded)[:, : 4 * self.crop])
            codes.append(target)
        logits = self._model(torch.stack(feats))
        wanted = torch.from_numpy(np.stack(codes))
        real = wanted >= 0
        phone, level = wanted[real] % 40, wanted[real] // 40 % 3
        rows = logits[real]
        phones = functional.cross_entropy(rows[:, : len(PHONES)], phone)
        levels = functional.cross_entropy(rows[:, len(PHONES) :], level)
        right = (rows[:, : len(PHONES)].argmax(-1) == phone).float().mean()
        height = (rows[:, len(PHONES) :].argmax(-1) == level).float().mean()
        return phones + LEVEL_WEIGHT * levels, {"phone": float(right), "level": float(height)}
