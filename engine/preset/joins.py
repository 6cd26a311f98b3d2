"""Utterances → speech that can be joined: no silence of the model's own, soft edges, our pauses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from antiphon.engine.errors import SynthesisFailed
from antiphon.engine.preset.model import SAMPLE_RATE_HZ, Utterance
from antiphon.engine.watermark.marked import FloatSamples

_AUDIBLE = 1e-3
"""-60 dBFS: the model's own silences lie below, the softest consonants above."""
_MARGIN = round(0.010 * SAMPLE_RATE_HZ)
_FADE = round(0.005 * SAMPLE_RATE_HZ)
_PAUSES_S = {",": 0.14, ";": 0.22, ":": 0.22, ".": 0.32, "!": 0.32, "?": 0.34}


@dataclass(frozen=True, slots=True, eq=False)
class Speech:
    """Speech from its first to its last sound; begins and ends at zero."""

    samples: FloatSamples
    symbol_ends: NDArray[np.int64]
    """(symbols,) sample behind each symbol, in growing order and within the samples."""


def trimmed(utterance: Utterance) -> Speech:
    """Cut the silence off both ends (the model puts 0.35 s in front) and fade over 5 ms.

    Raises:
        SynthesisFailed: there is nothing but silence, or samples that are not numbers.
    """
    samples = utterance.samples
    if not np.isfinite(samples).all():
        raise SynthesisFailed("the model produced samples that are not numbers")
    loud = np.flatnonzero(np.abs(samples) > _AUDIBLE)
    if not len(loud):
        raise SynthesisFailed("the model produced silence where words should be")
    start = max(0, int(loud[0]) - _MARGIN)
    end = min(len(samples), int(loud[-1]) + 1 + _MARGIN)
    cut = samples[start:end].copy()
    fade = min(_FADE, len(cut) // 2)
    ramp = (0.5 - 0.5 * np.cos(np.pi * np.arange(fade) / fade)).astype(np.float32)
    cut[:fade] *= ramp
    cut[len(cut) - fade :] *= ramp[::-1]
    ends = np.clip(utterance.symbol_ends - start, 0, len(cut))
    return Speech(cut, ends)


def pause(mark: str, speed: float) -> FloatSamples:
    """Return the silence between two clauses, the first of which ends with `mark`."""
    return np.zeros(round(_PAUSES_S.get(mark, 0.0) / speed * SAMPLE_RATE_HZ), np.float32)
