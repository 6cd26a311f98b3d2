"""`MarkedAudio`: the only form in which samples may leave the engine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatSamples = NDArray[np.float32]

_STAGE_KEY = object()
"""Held by this package's stages alone; without it a `MarkedAudio` cannot be made."""


@dataclass(frozen=True, slots=True, init=False)
class MarkedAudio:
    """Mono float32 samples in [-1, 1] that have been through the watermark stage.

    Encoders and sinks accept this type only, so that no path from a vocoder to a listener can
    skip the watermark. Slicing and joining keep the mark; anything else starts from `samples` and
    must go through a stage again.
    """

    samples: FloatSamples
    sample_rate: int
    watermark: str
    """Name of the stage that made it (`perth`, `audioseal`, or `none` in a laboratory)."""

    def __init__(
        self, samples: FloatSamples, sample_rate: int, watermark: str, *, _key: object
    ) -> None:
        if _key is not _STAGE_KEY:
            raise TypeError("MarkedAudio is made by a watermark stage only")
        object.__setattr__(self, "samples", samples)
        object.__setattr__(self, "sample_rate", sample_rate)
        object.__setattr__(self, "watermark", watermark)

    def __len__(self) -> int:
        return len(self.samples)
