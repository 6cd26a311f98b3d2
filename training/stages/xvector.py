"""Speaker encoder: a small TDNN whose embedding also tells how a virtual speaker was made.

Classifying speakers alone learns slowly on two cores. Regressing the known warp (formants, pitch,
tilt, breath) from the normalised embedding shows the net at once what tells voices apart.
"""

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from antiphon.engine.voice.features import KALDI_RATE, kaldi_filterbank
from antiphon.engine.voice.resample import resample
from antiphon.training.data.corpus import Corpus
from antiphon.training.data.hibari import Array
from antiphon.training.data.split import HELD_OUT_SPEAKERS, Split
from antiphon.training.loop import Draw, apply_gradients
from antiphon.training.sizes import SPEAKER_DIM

MARGIN = 0.1
SCALE = 20.0
WARP_WEIGHT = 2.0
WARPS = 4
"""Parameters of `Warp.vector`; speakers of other origin have none and only count as classes."""


class SpeakerEncoder(nn.Module):
    """(batch, frames, 80) filterbank, mean removed, to (batch, 192)."""

    def __init__(self, width: int = 144) -> None:
        super().__init__()
        shapes = (
            (80, 5, 2, 1),
            (width, 3, 1, 1),
            (width, 3, 1, 2),
            (width, 3, 1, 3),
            (width, 1, 1, 1),
        )
        self.layers = nn.ModuleList(
            nn.Conv1d(inputs, width, kernel, stride=stride, dilation=dilation)
            for inputs, kernel, stride, dilation in shapes
        )
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in shapes)
        self.head = nn.Linear(2 * width, SPEAKER_DIM)

    def forward(self, frames: Tensor) -> Tensor:
        """Statistics over time of the last layer, projected."""
        hidden = frames.transpose(1, 2) * 0.25
        for layer, norm in zip(self.layers, self.norms, strict=True):
            hidden = norm(layer(hidden).relu())
        mean = hidden.mean(-1)
        spread = (hidden.square().mean(-1) - mean.square()).clamp(min=1e-5).sqrt()
        embedded: Tensor = self.head(torch.cat([mean, spread], dim=-1))
        return embedded


class _Heads(nn.Module):
    """The encoder with what only training needs."""

    def __init__(self, speakers: int, warps: int) -> None:
        super().__init__()
        self.encoder = SpeakerEncoder()
        self.classes = nn.Parameter(torch.randn(speakers, SPEAKER_DIM))
        self.warp = nn.Linear(SPEAKER_DIM, warps)


def filterbank(samples: Array) -> Tensor:
    """Kaldi features of 24 kHz samples, (frames, 80), mean over time removed."""
    features = kaldi_filterbank(resample(samples, 24_000, KALDI_RATE))
    return features - features.mean(0, keepdim=True)


class SpeakerStage:
    """Cosine softmax with margin over the training speakers, and the warp's regression."""

    def __init__(self, corpus: Corpus, parts: Split, *, batch: int = 32, seed: int = 1) -> None:
        torch.manual_seed(seed)
        self.corpus, self.parts, self.batch = corpus, parts, batch
        names = sorted({row["speaker"] for row in corpus.rows} - set(HELD_OUT_SPEAKERS))
        self.label = {name: number for number, name in enumerate(names)}
        self.by_speaker: dict[str, list[int]] = {}
        for index in parts.train:
            self.by_speaker.setdefault(corpus.rows[index]["speaker"], []).append(index)
        self._model = _Heads(len(names), WARPS)

    @property
    def model(self) -> nn.Module:
        """Encoder and training heads."""
        return self._model

    def optimizers(self, peak_lr: float) -> list[torch.optim.Optimizer]:
        """AdamW over all weights."""
        return [torch.optim.AdamW(self._model.parameters(), lr=peak_lr, betas=(0.9, 0.98))]

    def step(self, draw: Draw, optimizers: list[torch.optim.Optimizer]) -> dict[str, float]:
        """One batch, every speaker equally likely."""
        names = draw.numpy.choice(sorted(self.by_speaker), self.batch)
        chosen = [int(draw.numpy.choice(self.by_speaker[name])) for name in names]
        seconds = float(draw.numpy.uniform(0.8, 2.4))
        loss, figures = self._loss(chosen, seconds, draw.numpy)
        apply_gradients(loss, self._model, optimizers, 1.0)
        return figures

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Losses on held-out sentences; cosine same and different on held-out speakers."""
        rng = np.random.default_rng(0)
        _, figures = self._loss(list(self.parts.validation[:96]), 2.0, rng)
        unseen = list(self.parts.unseen[:90])
        embedded = functional.normalize(self._embed(unseen, 2.4, rng), dim=-1)
        cosine = embedded @ embedded.T
        speaker = np.array([self.corpus.rows[i]["speaker"] for i in unseen])
        same = torch.from_numpy(speaker[:, None] == speaker[None, :])
        other = ~torch.eye(len(unseen), dtype=torch.bool)
        figures["unseen same"] = float(cosine[same & other].mean())
        figures["unseen different"] = float(cosine[~same].mean())
        return {**figures, "score": figures["class"] + figures["warp"]}

    def _embed(self, chosen: list[int], seconds: float, rng: np.random.Generator) -> Tensor:
        tokens = max(1, round(seconds * 25))
        rows = []
        for index in chosen:
            length = self.corpus.tokens(index)
            first = int(rng.integers(0, max(1, length - tokens)))
            samples = self.corpus.samples(index, first, min(tokens, length - first))
            rows.append(np.resize(samples, 960 * tokens))
        features = torch.stack([filterbank(samples) for samples in rows])
        embedded: Tensor = self._model.encoder(features)
        return embedded

    def _loss(
        self, chosen: list[int], seconds: float, rng: np.random.Generator
    ) -> tuple[Tensor, dict[str, float]]:
        rows = [self.corpus.rows[index] for index in chosen]
        label = torch.tensor([self.label[row["speaker"]] for row in rows])
        embedded = functional.normalize(self._embed(chosen, seconds, rng), dim=-1)
        cosine = embedded @ functional.normalize(self._model.classes, dim=-1).T
        margin = functional.one_hot(label, cosine.shape[1]) * MARGIN
        classes = functional.cross_entropy(SCALE * (cosine - margin), label)
        known = torch.tensor([bool(row["warp"]) for row in rows])
        target = torch.tensor([row["warp"] or [0.0] * WARPS for row in rows])
        error = (self._model.warp(embedded) - target).square().mean(-1)
        warp = (error * known).sum() / known.sum().clamp(min=1)
        accuracy = float((cosine.argmax(1) == label).float().mean())
        figures = {
            "class": float(classes.detach()),
            "warp": float(warp.detach()),
            "accuracy": accuracy,
        }
        return classes + WARP_WEIGHT * warp, figures


@torch.no_grad()
def embed_corpus(encoder: SpeakerEncoder, corpus: Corpus, cache: Path) -> Array:
    """(utterances, 192) embeddings of whole utterances, kept beside the shards."""
    if not cache.exists():
        encoder.eval()
        rows = [encoder(filterbank(corpus.samples(i))[None])[0].numpy() for i in range(len(corpus))]
        np.save(cache, np.stack(rows))
    return np.asarray(np.load(cache), np.float32)
