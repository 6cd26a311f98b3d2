"""What the voice gate measures on samples: likeness, opinion score, pitch, clicks."""

from __future__ import annotations

import functools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from resemblyzer import VoiceEncoder
from speechmos import dnsmos

from antiphon.engine.voice.resample import resample

Samples = NDArray[np.float32]
Embeddings = Mapping[str, NDArray[np.float32]]
"""Resemblyzer's unit vector, (256,), by voice."""

RATE_HZ = 24_000
MEASURE_HZ = 16_000
BORDER_SAMPLES = 48
"""2 ms on either side of a hop border."""
AROUND_SAMPLES = 960


@functools.cache
def _encoder() -> VoiceEncoder:
    return VoiceEncoder("cpu", verbose=False)


def voice_embedding(pieces: Sequence[Samples]) -> NDArray[np.float32]:
    """Resemblyzer's unit vector for the joined speech, (256,)."""
    joined = resample(np.concatenate(pieces), RATE_HZ, MEASURE_HZ)
    embedding: NDArray[np.float32] = _encoder().embed_utterance(_leveled(joined))
    return embedding


def opinion_score(samples: Samples) -> float:
    """DNSMOS OVRL, 1 to 5."""
    heard = resample(samples, RATE_HZ, MEASURE_HZ)
    return float(dnsmos.run(np.clip(_leveled(heard), -1, 1), MEASURE_HZ)["ovrl_mos"])


def _leveled(samples: Samples) -> Samples:
    return samples * (0.7 / max(float(np.abs(samples).max()), 1e-6))


def pitch_correlation(made: Samples, wanted: Samples) -> float | None:
    """Correlation of log F0 where both, (frames,) in Hz, are voiced; None where there is little."""
    count = min(len(made), len(wanted))
    made, wanted = made[:count], wanted[:count]
    voiced = (made > 50) & (wanted > 50)
    if voiced.sum() < 10:
        return None
    return float(np.corrcoef(np.log(made[voiced]), np.log(wanted[voiced]))[0, 1])


def click_decibels(samples: Samples, borders: Sequence[int]) -> list[float]:
    """Energy of the second difference at each hop border against its surroundings, in dB.

    A step or a kink puts energy into the second difference. 0 dB is a border like any other place;
    a click of a few percent of full scale in a vowel gives more than 10.
    """
    bent = np.square(np.diff(samples.astype(np.float64), n=2))
    ratios = []
    for border in borders:
        low, high = border - AROUND_SAMPLES, border + AROUND_SAMPLES
        if low < 0 or high > len(bent):
            continue
        near = bent[border - BORDER_SAMPLES : border + BORDER_SAMPLES]
        around = np.concatenate(
            [bent[low : border - BORDER_SAMPLES], bent[border + BORDER_SAMPLES : high]]
        )
        ratios.append(float(10 * np.log10((near.mean() + 1e-12) / (around.mean() + 1e-12))))
    return ratios


@dataclass(frozen=True, slots=True)
class Ranking:
    """Which voices are nearest to their own prompt, and mean likeness to it and to the others."""

    right: tuple[str, ...]
    """Of all prompts, the voice's own is nearest."""
    nearer: tuple[str, ...]
    """The voice's own prompt is nearer than that of one different speaker, the next by name."""
    own: float
    others: float


def right_voice_ranks(made: Embeddings, prompts: Embeddings) -> Ranking:
    """Compare every voice with the prompts of all."""
    names = sorted(made)
    likeness = np.array([[float(made[a] @ prompts[b]) for b in names] for a in names])
    own = np.diag(likeness)
    others = likeness[~np.eye(len(names), dtype=bool)]
    first = likeness.argmax(axis=1)
    right = tuple(name for number, name in enumerate(names) if first[number] == number)
    nearer = tuple(
        name
        for number, name in enumerate(names)
        if own[number] > likeness[number, (number + 1) % len(names)]
    )
    return Ranking(right, nearer, float(own.mean()), float(others.mean()) if others.size else 0.0)


def mean(values: Sequence[float]) -> float | None:
    """The mean; None of nothing."""
    return statistics.fmean(values) if values else None
