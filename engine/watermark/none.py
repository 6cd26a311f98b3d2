"""No mark at all, for laboratories: must be typed out in the configuration, and is announced."""

from __future__ import annotations

import numpy as np

from antiphon.engine.watermark.interface import Detection
from antiphon.engine.watermark.marked import _STAGE_KEY, FloatSamples, MarkedAudio

NAME = "none"


class UnmarkedStream:
    """Passes samples on as they are."""

    hold_back_samples = 0

    def __init__(self, sample_rate: int) -> None:
        self._sample_rate = sample_rate

    def push(self, samples: FloatSamples) -> MarkedAudio:
        """See `WatermarkStream`."""
        return MarkedAudio(samples, self._sample_rate, NAME, _key=_STAGE_KEY)

    def finish(self) -> MarkedAudio:
        """See `WatermarkStream`."""
        return self.push(np.zeros(0, np.float32))


class NoWatermark:
    """The laboratory's `Watermark`."""

    name = NAME

    def stream(self, sample_rate: int) -> UnmarkedStream:
        """See `Watermark`."""
        return UnmarkedStream(sample_rate)

    def detect(self, samples: FloatSamples, sample_rate: int) -> Detection:
        """Find nothing: there is nothing to find."""
        return Detection(marked=False, score=0.0, spans=())
