"""Marked audio for encoder tests: tones and noise that claim to come from a laboratory stage."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from antiphon.engine.watermark import marked


def as_marked(samples: NDArray[np.floating], rate: int = 24000) -> marked.MarkedAudio:
    """Wrap samples as the stage named `none` would."""
    return marked.MarkedAudio(samples.astype(np.float32), rate, "none", _key=marked._STAGE_KEY)


def tone(hz: float, seconds: float, rate: int = 24000, level: float = 0.5) -> NDArray[np.float32]:
    """A sine wave."""
    return (level * np.sin(2 * np.pi * hz * np.arange(round(seconds * rate)) / rate)).astype(
        np.float32
    )
