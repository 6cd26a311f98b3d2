"""No watermark: for laboratories. It must be typed out in the configuration and is announced."""

from __future__ import annotations

import numpy as np

from antiphon.engine.watermark.interface import Detection
from antiphon.engine.watermark.marked import _STAGE_KEY, FloatSamples, MarkedAudio


class NoWatermarkStream:
    """Passes samples on as they are."""

    hold_back_samples = 0

    def __init__(self, sample_rate: int) -> None:
        self._rate = sample_rate

    def push(self, samples: FloatSamples) -> MarkedAudio:
        """Return the samples unchanged."""
        return MarkedAudio(samples, self._rate, NoWatermark.name, _key=_STAGE_KEY)

    def finish(self) -> MarkedAudio:
        """Return nothing: nothing was held back."""
        return self.push(np.zeros(0, np.float32))


class NoWatermark:
    """The stage of a deployment that was told in writing not to mark."""

    name = "none"

    def stream(self, sample_rate: int) -> NoWatermarkStream:
        """Start a turn at `sample_rate` Hz."""
        return NoWatermarkStream(sample_rate)

    def detect(self, samples: FloatSamples, sample_rate: int) -> Detection:
        """Say that nothing is marked, which is all that can be known."""
        return Detection(marked=False, score=0.0, spans=())
