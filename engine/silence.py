"""Notices a turn that makes no sound."""

from __future__ import annotations

import numpy as np

from antiphon.engine.errors import SynthesisFailed
from antiphon.engine.watermark.marked import FloatSamples

SILENT_PEAK = 1e-3
"""-60 dBFS. The pauses of every voice tried stay above it only in part, words always do."""
LONGEST_SILENCE_S = 3.0
"""The longest pause that speech contains on purpose is well under a second."""


class SilenceGuard:
    """Looks at the samples of one turn before they are heard."""

    def __init__(self, sample_rate: int) -> None:
        self._limit = int(LONGEST_SILENCE_S * sample_rate)
        self._silent = 0
        self._heard = False
        self._samples = 0

    def check(self, samples: FloatSamples) -> None:
        """Take note of the next samples.

        Raises:
            SynthesisFailed: non-finite samples, or a silence no speech contains.
        """
        if not len(samples):
            return
        if not np.isfinite(samples).all():
            raise SynthesisFailed("the model produced samples that are not numbers")
        self._samples += len(samples)
        loud = np.flatnonzero(np.abs(samples) > SILENT_PEAK)
        if len(loud):
            self._heard = True
            gaps = np.diff(loud, prepend=-1 - self._silent) - 1
            self._raise_if_over(int(gaps.max()))
            self._silent = len(samples) - 1 - int(loud[-1])
        else:
            self._silent += len(samples)
        self._raise_if_over(self._silent)

    def finish(self) -> None:
        """Raise if the whole turn was silent.

        Raises:
            SynthesisFailed: samples were made, and none could be heard.
        """
        if self._samples and not self._heard:
            raise SynthesisFailed("the model produced silence where words should be")

    def _raise_if_over(self, silent: int) -> None:
        if silent > self._limit:
            raise SynthesisFailed(
                f"the model was silent for over {LONGEST_SILENCE_S:g} s where words should be",
                limit=LONGEST_SILENCE_S,
            )
