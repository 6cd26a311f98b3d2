"""The default watermark: Perth (`resemble-perth`), whose weights come in its wheel."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from antiphon.engine.errors import WatermarkUnavailable
from antiphon.engine.watermark.interface import Detection
from antiphon.engine.watermark.marked import _STAGE_KEY, FloatSamples, MarkedAudio
from antiphon.engine.watermark.perth_detector import PerthDetector
from antiphon.engine.watermark.perth_filter import (
    FilterState,
    encoder_gains_db,
    minimum_phase,
)
from antiphon.engine.watermark.perth_network import PerthNetwork, weights_file

STRENGTH = 1.3
"""Times the gains of PerthNet's encoder. Chosen by measurement: at 1.3 the mark is found behind
Opus at 24 kbit/s and µ-law, and DNSMOS is that of the unmarked speech; at 1 it is not always."""
LOWEST_RATE_HZ = 8000


class PerthStream:
    """Marks one turn. Holds nothing back: out come as many samples as went in."""

    hold_back_samples = 0

    def __init__(self, taps: FloatSamples, sample_rate: int) -> None:
        self._filter = FilterState(taps)
        self._rate = sample_rate

    def push(self, samples: FloatSamples) -> MarkedAudio:
        """Mark samples."""
        marked = np.clip(self._filter.filter(samples), -1.0, 1.0)
        return MarkedAudio(marked, self._rate, PerthWatermark.name, _key=_STAGE_KEY)

    def finish(self) -> MarkedAudio:
        """Return nothing: nothing was held back."""
        return self.push(np.zeros(0, np.float32))


class PerthWatermark:
    """See `Watermark`."""

    name = "perth"

    def __init__(self) -> None:
        """Load the network.

        Raises:
            WatermarkUnavailable: `resemble-perth` is not installed or its weights cannot be read.
        """
        network = PerthNetwork.load(weights_file())
        self._gains_db = encoder_gains_db(network)
        if not np.isfinite(self._gains_db).all() or np.abs(self._gains_db).max() < 0.5:
            raise WatermarkUnavailable(
                "The weights of resemble-perth leave no mark; reinstall it.",
                field="watermark.name",
            )
        self._detector = PerthDetector(network, self._gains_db)
        self._taps = lru_cache(maxsize=8)(
            lambda rate: minimum_phase(self._gains_db * STRENGTH, rate)
        )

    def stream(self, sample_rate: int) -> PerthStream:
        """Start marking a turn at `sample_rate` Hz, 8000 or more."""
        assert sample_rate >= LOWEST_RATE_HZ, "the mark lies below 2 kHz and needs room above"
        return PerthStream(self._taps(sample_rate), sample_rate)

    def detect(self, samples: FloatSamples, sample_rate: int) -> Detection:
        """Say whether and where mono samples carry the mark."""
        return self._detector.detect(samples, sample_rate)
