"""Streaming sample-rate conversion with exact accounting."""

from __future__ import annotations

import av
import numpy as np

from antiphon.engine.watermark.marked import FloatSamples

_EMPTY: FloatSamples = np.zeros(0, dtype=np.float32)


def resampled_length(samples: int, source_rate: int, rate: int) -> int:
    """Samples at `rate` that last as long as `samples` at `source_rate`, rounded."""
    return (2 * samples * rate + source_rate) // (2 * source_rate)


class Resampler:
    """Converts one mono stream from `source_rate` to `rate` Hz.

    swresample with its default 32-tap filter bank holds back half a filter: 2.0 ms from 24 to
    8 kHz, less to higher rates. (soxr at high quality would hold back 50 ms.) What comes out does
    not depend on how the stream was split, and in all it is `resampled_length` samples.
    """

    def __init__(self, source_rate: int, rate: int) -> None:
        self.source_rate = source_rate
        self.rate = rate
        self._samples_in = 0
        self._samples_out = 0
        self._swr = (
            None
            if source_rate == rate
            else av.AudioResampler(format="flt", layout="mono", rate=rate)
        )

    def push(self, samples: FloatSamples) -> FloatSamples:
        """Convert samples; the newest 2 ms at most stay inside until more come."""
        if self._swr is None or len(samples) == 0:
            return samples
        self._samples_in += len(samples)
        frame = av.AudioFrame.from_ndarray(
            np.ascontiguousarray(samples, dtype=np.float32)[None], format="flt", layout="mono"
        )
        frame.sample_rate = self.source_rate
        return self._collect(self._swr.resample(frame))

    def finish(self) -> FloatSamples:
        """Release the rest; the stream then has its exact length."""
        if self._swr is None or self._samples_in == 0:
            return _EMPTY
        before = self._samples_out
        rest = self._collect(self._swr.resample(None))
        owed = resampled_length(self._samples_in, self.source_rate, self.rate) - before
        if len(rest) >= owed:
            return rest[:owed]
        return np.concatenate([rest, np.zeros(owed - len(rest), dtype=np.float32)])

    def _collect(self, frames: list[av.AudioFrame]) -> FloatSamples:
        parts = [frame.to_ndarray()[0] for frame in frames]
        out: FloatSamples = np.concatenate(parts) if parts else _EMPTY
        self._samples_out += len(out)
        return out
