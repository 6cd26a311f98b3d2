"""Repetition-aware sampling (VALL-E 2, arXiv 2406.05370), exact and over a batch.

Draw from the nucleus; where the drawn id already fills too much of the recent window, draw again
from the full distribution without it. The draws use uniform numbers that depend on the request's
seed and its step alone, so a request sounds the same whoever shares the batch, on every backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from antiphon.engine.speech_lm.layout import Constraint, Vocabulary
from antiphon.engine.speech_lm.request import Sampling

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MASK_64 = (1 << 64) - 1


def uniforms(seeds: Sequence[int], steps: Sequence[int], draws: int = 2) -> NDArray[np.float64]:
    """Return uniform numbers in [0, 1), (requests, draws), from counters.

    SplitMix64 (Steele et al., OOPSLA 2014) over the counter `draws · step + draw`, keyed by seed.
    """
    seed = np.array([s & _MASK_64 for s in seeds], np.uint64)[:, None]
    step = np.array(steps, np.uint64)[:, None]
    counter = step * np.uint64(draws) + np.arange(1, draws + 1, dtype=np.uint64)
    mixed = _mix(np.add(_mix(seed), counter * _GOLDEN, dtype=np.uint64))
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return value ^ (value >> np.uint64(31))


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


def sample(logits: Tensor, draws: Sequence[Draw]) -> list[int]:
    """Sample one id for each row of (batch, rows) float32 logits.

    Rows that share their parameters are drawn together.
    """
    if all(draw.sampling.greedy for draw in draws):
        greedy: list[int] = logits.argmax(-1).tolist()
        return greedy
    groups: dict[tuple[float, int], list[int]] = {}
    result = [0] * len(draws)
    for row, draw in enumerate(draws):
        if draw.sampling.greedy:
            result[row] = int(logits[row].argmax())
        else:
            groups.setdefault((draw.sampling.top_p, draw.sampling.top_k), []).append(row)
    for rows in groups.values():
        part = logits if len(rows) == len(draws) else logits[rows]
        for row, token in zip(rows, _ras(part, [draws[row] for row in rows]), strict=True):
            result[row] = token
    return result


def _ras(logits: Tensor, draws: Sequence[Draw]) -> list[int]:
    sampling = draws[0].sampling
    probabilities = logits.float().softmax(-1)
    values, ids = nucleus(probabilities, sampling.top_p, sampling.top_k)
    random = uniforms([d.seed for d in draws], [d.step for d in draws])
    first = torch.from_numpy(random[:, :1]).to(logits.device)
    chosen = ids.gather(1, _invert(values.double().cumsum(-1), first)).squeeze(1)
    tokens: list[int] = chosen.tolist()
    again = [row for row, draw in enumerate(draws) if _repetitive(tokens[row], draw)]
    if again:
        rest = probabilities[again].double()
        rest[torch.arange(len(again)), chosen[again]] = 0.0
        second = torch.from_numpy(random[again, 1:]).to(logits.device)
        redrawn = _invert(rest.cumsum(-1), second).squeeze(1).tolist()
        for row, token in zip(again, redrawn, strict=True):
            tokens[row] = token
    return tokens


def _repetitive(token: int, draw: Draw) -> bool:
    """Whether the recent window holds the id too often; window · threshold is the least count."""
    window = draw.sampling.window
    return list(draw.history[-window:]).count(token) >= window * draw.sampling.threshold


def nucleus(probabilities: Tensor, top_p: float, top_k: int) -> tuple[Tensor, Tensor]:
    """Return probabilities (zero outside the nucleus) and ids, (batch, ≤ top_k) each.

    Ids in falling order of probability, equal ones by rising id, are taken while the sum before
    them is under `top_p` and fewer than `top_k` are taken.
    """
    rows = probabilities.shape[-1]
    # Positive floats order like their bits; the low half breaks ties in favour of the lower id,
    # as a stable sort of the whole row would, at the price of a partial one.
    bits = probabilities.view(torch.int32).to(torch.int64) << 32
    keys = bits + torch.arange(rows - 1, -1, -1, device=probabilities.device)
    ids = keys.topk(min(top_k, rows), dim=-1).indices
    values = probabilities.gather(1, ids)
    before = torch.nn.functional.pad(values.cumsum(-1)[:, :-1], (1, 0))
    return values * (before < torch.tensor(top_p, dtype=torch.float32)), ids


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
    values, ids = nucleus(full[None], sampling.top_p, sampling.top_k)
    full = full.double()
    p = torch.zeros_like(full).scatter_(0, ids[0], values[0].double())
    p /= p.sum()
    draw = Draw(sampling, history, 0, 0)
    result = p.clone()
    for token in {t for t in history[-sampling.window :] if p[t] > 0 and _repetitive(t, draw)}:
        rest = full.clone()
        rest[token] = 0.0
        result[token] -= p[token]
        result += p[token] * rest / rest.sum()
    return result
