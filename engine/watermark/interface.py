"""What every watermark back end offers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from antiphon.engine.watermark.marked import FloatSamples, MarkedAudio


@dataclass(frozen=True, slots=True)
class Detection:
    """Answer of a detector for one piece of audio."""

    marked: bool
    score: float
    """0 (surely clean) … 1 (surely marked)."""
    spans: tuple[tuple[float, float], ...]
    """Start and end in seconds of the stretches that carry the mark."""


class WatermarkStream(Protocol):
    """Marks one turn. A value that one session owns: no locks, dropped on cancel.

    Over a turn the samples out equal the samples in, in number and order; `push` may hold back up
    to `hold_back_samples`, `finish` releases them.
    """

    @property
    def hold_back_samples(self) -> int:
        """Most samples that `push` keeps for later."""

    def push(self, samples: FloatSamples) -> MarkedAudio:
        """Mark samples; may return fewer than were pushed, also none."""

    def finish(self) -> MarkedAudio:
        """Return what was held back. The stream cannot be used afterwards."""


class Watermark(Protocol):
    """A loaded back end, shared by all sessions."""

    name: str

    def stream(self, sample_rate: int) -> WatermarkStream:
        """Start marking a turn at `sample_rate` Hz."""

    def detect(self, samples: FloatSamples, sample_rate: int) -> Detection:
        """Say whether and where `samples` (mono) carry this mark."""
