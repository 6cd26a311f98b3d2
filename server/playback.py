"""The listener, as seen from here: how far ahead of them we are and when they ran dry."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Playback:
    """One turn as a listener at normal speed hears it, who starts with the first packet.

    Times are `time.monotonic()` seconds given by the caller. Network delay is not in it: the same
    delay before every packet moves the start and nothing else.
    """

    gaps: int = 0
    """Moments at which the listener had played everything and the next packet was not there."""
    gap_s: float = 0.0
    started_at: float | None = None
    runs_dry_at: float = 0.0

    def heard(self, seconds: float, now: float) -> None:
        """Account for `seconds` of audio handed over at `now`."""
        if self.started_at is None:
            self.started_at = self.runs_dry_at = now
        elif now > self.runs_dry_at:
            self.gaps += 1
            self.gap_s += now - self.runs_dry_at
            self.runs_dry_at = now
        self.runs_dry_at += seconds

    def lead_s(self, now: float) -> float:
        """Seconds of audio that the listener has and has not yet played."""
        return max(0.0, self.runs_dry_at - now) if self.started_at is not None else 0.0
