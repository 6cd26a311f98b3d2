"""The caller's side of a call: their audio at 16 kHz, for the detector and for agents."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from antiphon.engine.watermark.marked import FloatSamples
from antiphon.server.audio.resample import Resampler
from antiphon.server.audio.samples import to_int16
from antiphon.server.calls.vad import RATE, VoiceActivity, VoiceEvent

Tap = Callable[[bytes], None]

_MOST_AHEAD_S = 10.0
"""Audio that may come faster than it was spoken. A network that stalled brings later what it held
back; what comes faster than that is nobody's voice, and to work on it would cost other calls."""


class CallerAudio:
    """Takes what the caller says at any rate; hands it on as signed 16-bit PCM at 16 kHz."""

    def __init__(self, emit: Callable[[VoiceEvent], None]) -> None:
        self._activity = VoiceActivity(emit)
        self._resampler: Resampler | None = None
        self._taps: list[Tap] = []
        self._began: float | None = None
        self.seconds = 0.0

    def push(self, samples: FloatSamples, rate: int) -> bool:
        """Add samples. Never waits; drops what comes too fast for a voice, and then returns False:
        whoever reads them from a peer should read more slowly."""
        now = time.monotonic()
        if self._began is None:
            self._began = now
        if self.seconds + len(samples) / rate > now - self._began + _MOST_AHEAD_S:
            return False
        if self._resampler is None or self._resampler.source_rate != rate:
            self._resampler = Resampler(rate, RATE)
        self.seconds += len(samples) / rate
        converted = to_int16(np.clip(self._resampler.push(samples), -1.0, 1.0))
        if len(converted) == 0:
            return True
        self._activity.push(converted)
        if self._taps:
            pcm = converted.astype("<i2", copy=False).tobytes()
            for tap in list(self._taps):
                tap(pcm)
        return True

    def add_tap(self, tap: Tap) -> Callable[[], None]:
        """Hand the audio on to `tap` as well, until the returned function is called."""
        self._taps.append(tap)

        def remove() -> None:
            if tap in self._taps:
                self._taps.remove(tap)

        return remove

    def close(self) -> None:
        """Stop listening."""
        self._activity.close()
        self._taps.clear()
