"""When a process that says nothing is given up: counted silence, without clocks or threads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Silence:
    """How long a process has said nothing.

    Whole ticks are counted instead of comparing clock times: where the watching side itself was
    stopped (a debugger, a frozen container), it comes back one tick later and not hours later, and
    finds the answers that were waiting for it.
    """

    limit_s: float
    """Once it is loaded, within which it answers between two calls of the model."""
    loading_limit_s: float
    """For loading, during which it says nothing."""
    _for_s: float = 0.0
    _heard: int = 0

    @property
    def tick_s(self) -> float:
        """Seconds from one look to the next: a limit is met to within a quarter of it."""
        return min(self.limit_s, self.loading_limit_s) / 4

    def tick(self, heard: int, *, loaded: bool) -> bool:
        """Take note of another tick and of how often it was heard so far.

        Returns whether it was silent for too long.
        """
        if heard != self._heard:
            self._heard, self._for_s = heard, 0.0
            return False
        self._for_s += self.tick_s
        return self._for_s > (self.limit_s if loaded else self.loading_limit_s)
