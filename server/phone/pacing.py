"""How far ahead of the ear a buffering peer is. Free of I/O; times are `time.monotonic()`."""

from __future__ import annotations

from antiphon.server.calls.playout import FRAME_S


class Lead:
    """Audio sent to a peer that plays it at normal speed, starting when its buffer has some."""

    def __init__(self, lead_s: float) -> None:
        self.lead_s = lead_s
        self._dry_at = 0.0

    def wait_s(self, now: float) -> float:
        """Seconds until one more frame may be sent."""
        return max(0.0, self._dry_at + FRAME_S - self.lead_s - now)

    def sent(self, frames: int, now: float) -> None:
        """Account for frames."""
        self._dry_at = max(self._dry_at, now) + frames * FRAME_S

    def cleared(self, now: float) -> None:
        """The peer dropped what it had."""
        self._dry_at = now

    def ahead_s(self, now: float) -> float:
        """Audio that the peer has and has not played."""
        return max(0.0, self._dry_at - now)
