"""Repetition-aware sampling (VALL-E 2, arXiv 2406.05370), exact and over a batch.

Draw from the nucleus; where the drawn id already fills too much of the recent window, draw again
from the full distribution without it. The draws use uniform numbers that depend on the request's
seed and its step alone, so a request sounds the same whoever shares the batch, on every backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from antiphon.engine.speech_lm.layout import Constraint, Vocabulary
from antiphon.engine.speech_lm.request import Sampling

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MASK_64 = (1 << 64) - 1


def uniforms(
    seeds: NDArray[np.uint64], steps: NDArray[np.uint64], draws: int = 2
) -> NDArray[np.float64]:
    """Return uniform numbers in [0, 1), (requests, draws), from counters.

    SplitMix64 (Steele et al., OOPSLA 2014) over the counter `draws · step + draw`, keyed by seed.
    """
    counter = steps[:, None] * np.uint64(draws) + np.arange(1, draws + 1, dtype=np.uint64)
    mixed = _mix(_mix(seeds)[:, None] + counter * _GOLDEN)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(value: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(over="ignore"):
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: NDArray[Any] = value ^ (value >> np.uint64(31))
        return mixed


class ConstraintMasks:
    """Which logits each `Constraint` closes, as one table: (constraints, rows)."""

    def __init__(self, vocabulary: Vocabulary, device: torch.device) -> None:
        closed = torch.ones(len(Constraint), vocabulary.rows, dtype=torch.bool)
        for constraint in Constraint:
            closed[constraint, list(vocabulary.allowed(constraint))] = False
        self._closed = closed.to(device)
        self._rows = [self._closed[c] for c in Constraint]

    def apply(self, logits: Tensor, constraints: Sequence[Constraint]) -> Tensor:
        """Set closed ids of each row of (batch, rows) to minus infinity, in place."""
        first = constraints[0]
        if all(constraint == first for constraint in constraints):
            return logits.masked_fill_(self._rows[first], -torch.inf)
        index = torch.tensor([int(c) for c in constraints], device=logits.device)
        return logits.masked_fill_(self._closed[index], -torch.inf)


@dataclass(frozen=True, slots=True)
class Draw:
    """How to sample one row: its parameters, what it looks back on, its random numbers."""

    sampling: Sampling
    history: Sequence[int]
    seed: int
    step: int


@dataclass(slots=True)
class DrawBatch:
    """The draws of a batch as arrays; everything is (rows,) but `recent`, (rows, widest window)."""

    top_p: Tensor
    top_k: Tensor
    repeats: Tensor
    """Occurrences in the window from which on an id counts as repetitive (window · threshold)."""
    greedy: Tensor
    recent: Tensor
    """The window of each row, newest last, filled up with -1 in front."""
    seeds: NDArray[np.uint64]
    steps: NDArray[np.uint64]

    @classmethod
    def of(cls, draws: Sequence[Draw], device: torch.device | str = "cpu") -> DrawBatch:
        """Collate single draws."""
        settings = [draw.sampling for draw in draws]
        widest = max(s.window for s in settings)
        recent = [
            [-1] * (widest - len(window)) + window
            for window in (list(d.history[-d.sampling.window :]) for d in draws)
        ]
        return cls(
            top_p=torch.tensor([s.top_p for s in settings], dtype=torch.float32, device=device),
            top_k=torch.tensor([s.top_k for s in settings], device=device),
            repeats=torch.tensor(
                [s.window * s.threshold for s in settings], dtype=torch.float64, device=device
            ),
            greedy=torch.tensor([s.greedy for s in settings], device=device),
            recent=torch.tensor(recent, device=device),
            seeds=np.array([d.seed & _MASK_64 for d in draws], np.uint64),
            steps=np.array([d.step for d in draws], np.uint64),
        )


def sample(logits: Tensor, draws: Sequence[Draw]) -> list[int]:
    """Sample one id for each row of (batch, rows) float32 logits."""
    if all(draw.sampling.greedy for draw in draws):
        greedy: list[int] = logits.argmax(-1).tolist()
        return greedy
    widest = max(draw.sampling.top_k for draw in draws)
    tokens: list[int] = draw_batch(logits, DrawBatch.of(draws, logits.device), widest).tolist()
    return tokens


def draw_batch(logits: Tensor, batch: DrawBatch, widest_top_k: int) -> Tensor:
    """Return one id for each row of (batch, rows) float32 logits, without a loop over rows."""
    probabilities = logits.softmax(-1)
    values, ids = nucleus(probabilities, batch.top_p[:, None], batch.top_k[:, None], widest_top_k)
    random = torch.from_numpy(uniforms(batch.seeds, batch.steps)).to(logits.device)
    place = _invert(values.double().cumsum(-1), random[:, :1])
    tokens = ids.gather(1, place).squeeze(1)
    counts = (batch.recent == tokens[:, None]).sum(-1)
    again = (counts >= batch.repeats).nonzero().squeeze(1)
    if len(again):
        rest = probabilities[again].double()
        rest.scatter_(1, tokens[again, None], 0.0)
        tokens[again] = _invert(rest.cumsum(-1), random[again, 1:]).squeeze(1)
    return torch.where(batch.greedy, ids[:, 0], tokens)


def nucleus(
    probabilities: Tensor, top_p: Tensor, top_k: Tensor, widest: int
) -> tuple[Tensor, Tensor]:
    """Return probabilities (zero outside the nucleus) and ids, (batch, ≤ widest) each.

    Ids in falling order of probability, equal ones by rising id, are taken while the sum before
    them is under `top_p` and fewer than `top_k` are taken. Both are (batch, 1).
    """
    rows = probabilities.shape[-1]
    # Positive floats order like their bits; the low half breaks ties in favour of the lower id,
    # as a stable sort of the whole row would, at the price of a partial one.
    bits = probabilities.view(torch.int32).to(torch.int64) << 32
    keys = bits + torch.arange(rows - 1, -1, -1, device=probabilities.device)
    ids = keys.topk(min(widest, rows), dim=-1).indices
    values = probabilities.gather(1, ids)
    before = torch.nn.functional.pad(values.cumsum(-1)[:, :-1], (1, 0))
    rank = torch.arange(ids.shape[1], device=ids.device)
    return values * ((before < top_p) & (rank < top_k)), ids


def _invert(cumulative: Tensor, uniform: Tensor) -> Tensor:
    """Return the index of the first entry whose cumulative mass exceeds u of the total."""
    target = uniform * cumulative[:, -1:]
    index = torch.searchsorted(cumulative, target, right=True)
    return index.clamp_max(cumulative.shape[-1] - 1)


def ras_distribution(logits: Tensor, history: Sequence[int], sampling: Sampling) -> Tensor:
    """Return the exact distribution of one draw, (rows,) float64.

    Two-stage drawing is a mixture: with nucleus p, full q and R the repetitive ids of the nucleus,
    P(x) = p(x)·[x ∉ R] + Σ_{r ∈ R} p(r) · q(x)·[x ≠ r] / (1 − q(r)).
    """
    full = logits.float().softmax(-1)
    top_p, top_k = torch.tensor([[sampling.top_p]]), torch.tensor([[sampling.top_k]])
    values, ids = nucleus(full[None], top_p, top_k, sampling.top_k)
    full = full.double()
    p = torch.zeros_like(full).scatter_(0, ids[0], values[0].double())
    p /= p.sum()
    recent = list(history[-sampling.window :])
    result = p.clone()
    for token in set(recent):
        if p[token] > 0 and recent.count(token) >= sampling.window * sampling.threshold:
            rest = full.clone()
            rest[token] = 0.0
            result[token] -= p[token]
            result += p[token] * rest / rest.sum()
    return result
