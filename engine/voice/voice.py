"""A voice, as the stages need it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class LMPrompt:
    """What the speech LM hears of a voice. Every part may be empty."""

    text_ids: tuple[int, ...] = ()
    speech_ids: tuple[int, ...] = ()
    speaker: tuple[float, ...] = ()
    """Speaker embedding, heard by the LM of version 1 alone."""


@dataclass(frozen=True, slots=True, eq=False)
class AcousticPrompt:
    """What the flow hears of a voice.

    `key` identifies the content (for caches): equal keys mean equal arrays.
    """

    key: str
    tokens: NDArray[np.int64]
    """(prompt tokens,)"""
    mel: NDArray[np.float32]
    """(2 · prompt tokens, 80), natural log of magnitudes."""
    embedding: NDArray[np.float32]
    """(192,) speaker embedding as extracted, not yet normalised."""
