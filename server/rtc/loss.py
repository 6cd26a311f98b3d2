"""From the receiver's reports to an error-correction setting. Free of I/O."""

from __future__ import annotations

_STEPS = (0, 5, 10, 20)
"""Settings in percent. Few, because each change restarts an encoder."""
_SMOOTHING = 0.3
"""Weight of the newest report: a single lost packet does not switch anything."""
_FORGIVING = 0.6
"""A lower setting is taken once losses are below this part of it."""


class LossTracker:
    """Smooths reports and chooses a step, with hysteresis."""

    def __init__(self) -> None:
        self.percent = 0
        self._average = 0.0
        self._last_at: float | None = None

    def report(self, at: float, fraction: float) -> None:
        """Take a report of `fraction` of the packets lost; one seen before is ignored."""
        if self._last_at is not None and at <= self._last_at:
            return
        self._last_at = at
        self._average += _SMOOTHING * (100 * fraction - self._average)
        fitting = next((step for step in _STEPS if self._average <= step), _STEPS[-1])
        if self._average < 0.5:
            fitting = 0
        if fitting > self.percent or self._average < _FORGIVING * self.percent:
            self.percent = fitting
