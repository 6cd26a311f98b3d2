"""Flow matching: codes and a voice in, mel out, under every mask the server will use.

A row is a prompt and a target. The prompt is a piece of another utterance of the speaker, the
beginning of the same one, or nothing. The target may stop anywhere inside the 25-token grid with
three tokens of look-ahead, as a small hop does at run time, and attention is chunked or full.
"""

import math
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from antiphon.engine.checkpoint.config import FlowConfig
from antiphon.engine.flow.dit import DiTBlock
from antiphon.engine.flow.flow import Flow
from antiphon.training.data.codes import Ids
from antiphon.training.data.corpus import Corpus
from antiphon.training.data.features import Mels
from antiphon.training.data.hibari import Array
from antiphon.training.data.split import Split
from antiphon.training.loop import Draw, apply_gradients, matrices_and_rest

PROMPT_TOKENS = 78
LOOK_AHEAD = 3


@dataclass(frozen=True)
class FlowPlan:
    """Shares of the situations a batch is made of."""

    frames: int = 1600
    other_prompt: float = 0.5
    own_prefix: float = 0.25
    chunked: float = 0.7
    guidance_dropout: float = 0.2
    prompt_weight: float = 0.1
    """Weight of prompt frames in the loss: they are given, so there is little to learn."""


@dataclass(frozen=True)
class Batch:
    """Padded rows. `tokens` (rows, tokens + 3), `mel`, `cond` (rows, frames, 80)."""

    tokens: Tensor
    token_mask: Tensor
    mel: Tensor
    cond: Tensor
    frame_mask: Tensor
    weight: Tensor
    speaker: Tensor
    chunked: Tensor


def code_means(
    corpus: Corpus, mels: Mels, parts: Split, limit: int = 1500
) -> tuple[Tensor, Tensor]:
    """Mean mel of each code, (codes, 80), and the spread of mels around the global mean, (80,)."""
    total = np.zeros((240, 80))
    count = np.zeros(240)
    everything = []
    for index in parts.train[:limit]:
        mel = mels.get(index).reshape(-1, 2, 80).mean(1)
        codes = corpus.codes(index)
        np.add.at(total, codes, mel)
        np.add.at(count, codes, 1)
        everything.append(mel)
    joined = np.concatenate(everything)
    mean, spread = joined.mean(0), joined.std(0)
    # Rare codes borrow from their phone, and phones from the mean.
    phone = np.arange(240) % 40
    for name in range(40):
        rows = phone == name
        pooled = (total[rows].sum(0) + 20 * mean) / (count[rows].sum() + 20)
        total[rows] += 20 * pooled
        count[rows] += 20
    return torch.from_numpy(total / count[:, None]).float(), torch.from_numpy(spread).float()


def new_flow(config: FlowConfig, means: Tensor, spread: Tensor, seed: int) -> Flow:
    """A flow that starts as its own best guess without attention.

    The first channels of the residual stream carry the noisy mel, the next ones the mean mel of the
    code; the head reads velocity as mean minus noise, and all blocks start closed. What is left to
    learn is what context adds.
    """
    torch.manual_seed(seed)
    flow = Flow(config)
    estimator = flow.decoder.estimator
    centre = means.mean(0)
    bins = config.output_size
    with torch.no_grad():
        flow.input_embedding.weight.copy_((means - centre) / spread)
        flow.pre_lookahead_layer.conv2.weight.mul_(0.1)
        nn.init.zeros_(cast(Tensor, flow.pre_lookahead_layer.conv2.bias))
        projection = estimator.input_embed.proj
        projection.weight.mul_(0.3)
        projection.bias.zero_()
        projection.weight[:bins, :bins] = 0.4 * torch.eye(bins)
        projection.weight[bins : 2 * bins, 2 * bins : 3 * bins] = torch.eye(bins)
        projection.weight[:, bins : 2 * bins] *= 0.3
        cast(Tensor, estimator.input_embed.conv_pos_embed.conv2[0].weight).mul_(0.3)
        for block in estimator.transformer_blocks:
            closed = cast(DiTBlock, block).attn_norm.linear
            nn.init.zeros_(closed.weight)
            nn.init.zeros_(closed.bias)
        estimator.norm_out.linear.weight.mul_(0.1)
        estimator.norm_out.linear.bias.zero_()
        estimator.proj_out.weight.zero_()
        estimator.proj_out.weight[:, :bins] = -torch.eye(bins)
        estimator.proj_out.weight[:, bins : 2 * bins] = torch.diag(spread)
        estimator.proj_out.bias.copy_(centre)
    return flow


def is_matrix(name: str, weight: Tensor) -> bool:
    """Whether a weight is one of the blocks' matrices, which Muon is for."""
    return "transformer_blocks" in name and weight.ndim == 2 and "norm" not in name


class FlowStage:
    """Conditional flow matching on the optimal-transport path (arXiv 2210.02747)."""

    def __init__(
        self,
        config: FlowConfig,
        plan: FlowPlan,
        corpus: Corpus,
        mels: Mels,
        embeddings: Array,
        parts: Split,
        *,
        seed: int = 1,
    ) -> None:
        self.config, self.plan = config, plan
        self.corpus, self.mels, self.embeddings, self.parts = corpus, mels, embeddings, parts
        self.by_speaker: dict[str, list[int]] = {}
        for index in parts.train:
            self.by_speaker.setdefault(corpus.rows[index]["speaker"], []).append(index)
        self._model = new_flow(config, *code_means(corpus, mels, parts), seed)

    @property
    def model(self) -> nn.Module:
        """The flow."""
        return self._model

    def optimizers(self, peak_lr: float) -> list[torch.optim.Optimizer]:
        """Muon for the blocks' matrices, AdamW for the rest."""
        return matrices_and_rest(self._model, is_matrix, peak_lr, peak_lr)

    def step(self, draw: Draw, optimizers: list[torch.optim.Optimizer]) -> dict[str, float]:
        """One batch."""
        batch = self.batch(draw.numpy, self.parts.train)
        loss = self.loss(batch, draw.torch, self.plan.guidance_dropout)
        norm = apply_gradients(loss, self._model, optimizers, 1.0)
        return {"velocity": float(loss.detach()), "gradient": norm}

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Velocity error on held-out sentences without dropout, the same draws every time."""
        rng = np.random.default_rng(0)
        generator = torch.Generator().manual_seed(0)
        rounds = 8
        losses = [
            float(self.loss(self.batch(rng, self.parts.validation), generator, 0.0))
            for _ in range(rounds)
        ]
        mean = sum(losses) / rounds
        return {"velocity": mean, "score": mean}

    def batch(self, rng: np.random.Generator, pool: tuple[int, ...]) -> Batch:
        """Random rows of about `plan.frames` frames in all."""
        length = int(rng.integers(50, 190))
        rows = max(1, round(self.plan.frames / (2 * length)))
        return self._collate([self._row(int(rng.choice(pool)), length, rng) for _ in range(rows)])

    def loss(self, batch: Batch, generator: torch.Generator, dropout: float) -> Tensor:
        """Mean squared error of the velocity at random times, weighted over frames."""
        rows = len(batch.tokens)
        mu = self._model.plan_mel(batch.tokens, mask=batch.token_mask)[:, : batch.mel.shape[1]]
        speaker = self._model.speaker(batch.speaker)
        time = 1 - torch.cos(torch.rand(rows, generator=generator) * 0.5 * math.pi)
        noise = torch.randn(batch.mel.shape, generator=generator)
        kept = (torch.rand(rows, generator=generator) >= dropout).float()[:, None, None]
        at = time[:, None, None]
        rest = 1 - self.config.decoder.sigma_min
        point = (1 - rest * at) * noise + at * batch.mel
        velocity = self._model.decoder.estimator(
            point,
            mu * kept,
            time,
            speaker * kept[:, 0],
            batch.cond * kept,
            mask=batch.frame_mask,
            chunked=batch.chunked,
        )
        error = (velocity - (batch.mel - rest * noise)).square().mean(-1)
        mean: Tensor = (error * batch.weight).sum() / batch.weight.sum()
        return mean

    def _row(self, index: int, length: int, rng: np.random.Generator) -> "_Row":
        codes, mel = self.corpus.codes(index), self.mels.get(index)
        source, choice = index, rng.random()
        prompt_codes, prompt_mel = codes[:0], mel[:0]
        peers = self.by_speaker.get(self.corpus.rows[index]["speaker"], [index])
        if choice < self.plan.other_prompt:
            source = int(rng.choice(peers))
            count = min(int(rng.integers(15, PROMPT_TOKENS + 1)), self.corpus.tokens(source))
            first = int(rng.integers(0, self.corpus.tokens(source) - count + 1))
            prompt_codes = self.corpus.codes(source)[first : first + count]
            prompt_mel = self.mels.get(source, first, count)
            given = len(prompt_codes)
        else:
            source = int(rng.choice(peers))
            own = choice < self.plan.other_prompt + self.plan.own_prefix
            given = int(rng.integers(1, max(2, int(len(codes) * 0.4)))) if own else 0
        codes = np.concatenate([prompt_codes, codes])
        mel = np.concatenate([prompt_mel, mel])
        end = min(len(codes), max(length, given + 10))
        if rng.random() < 0.3:
            end = min(end, int(rng.integers(given + 4, max(given + 5, len(codes)))))
        chunked = bool(rng.random() < self.plan.chunked)
        return _Row(codes[: end + LOOK_AHEAD], mel[: 2 * end], given, source, chunked)

    def _collate(self, rows: list["_Row"]) -> Batch:
        frames = max(len(row.mel) for row in rows)
        tokens = torch.zeros(len(rows), frames // 2 + LOOK_AHEAD, dtype=torch.long)
        token_mask = torch.zeros(tokens.shape, dtype=torch.bool)
        mel = torch.zeros(len(rows), frames, 80)
        cond = torch.zeros_like(mel)
        weight = torch.zeros(len(rows), frames)
        frame_mask = torch.zeros(len(rows), frames, dtype=torch.bool)
        for number, row in enumerate(rows):
            tokens[number, : len(row.codes)] = torch.from_numpy(row.codes)
            token_mask[number, : len(row.codes)] = True
            mel[number, : len(row.mel)] = torch.from_numpy(row.mel)
            cond[number, : 2 * row.given] = mel[number, : 2 * row.given]
            frame_mask[number, : len(row.mel)] = True
            weight[number, : len(row.mel)] = 1.0
            weight[number, : 2 * row.given] = self.plan.prompt_weight
        speaker = torch.from_numpy(self.embeddings[[row.source for row in rows]])
        chunked = torch.tensor([row.chunked for row in rows])
        return Batch(tokens, token_mask, mel, cond, frame_mask, weight, speaker, chunked)


@dataclass(frozen=True)
class _Row:
    codes: Ids
    """With up to three tokens beyond the end of the mel."""
    mel: Array
    given: int
    """Prompt tokens at the start."""
    source: int
    """Utterance whose speaker embedding is used."""
    chunked: bool
