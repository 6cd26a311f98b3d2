"""Who goes next: one pure function over who waits and since when.

Earliest deadline first. The deadline of a listener who hears speech is the moment their buffer runs
dry; that of one who has heard nothing is the moment their hop was asked for, which is past: so the
silent come before everyone who still has audio, the oldest first. A deadline never moves while a
hop waits and every newcomer's is later than the present, so whoever waits long enough is first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Demand:
    """One hop (or a voice's prompt) that wants its next estimator call."""

    key: int
    asked_at: float
    """`time.monotonic()` at which the work was asked for."""
    deadline: float | None = None
    """When the listener runs dry; None while nothing was heard."""
    lead_s: float | None = None
    """Work may start this long before the deadline; None: as soon as there is capacity."""
    rows: int = 2
    """Rows of the estimator's batch: 2 with guidance, 1 without."""

    @property
    def due(self) -> float:
        """The time by which demands are ordered."""
        return self.asked_at if self.deadline is None else self.deadline

    @property
    def starts_at(self) -> float:
        """The time before which a paced listener's work is left alone."""
        if self.deadline is None or self.lead_s is None:
            return self.asked_at
        return max(self.asked_at, self.deadline - self.lead_s)


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How many rows a call may have."""

    rows: int
    """Never more than this."""
    urgent_s: float = 0.2
    """Beyond `free_rows`, only demands due within this time join: others would slow them down."""
    free_rows: int = 2
    """Rows that cost (nearly) nothing more than one: large on a GPU, one session's on a CPU."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What to do now."""

    keys: tuple[int, ...]
    """The next batch, most urgent first; empty where nothing may start yet."""
    wake_at: float | None
    """When a demand that is being held back may start."""


def choose(demands: Sequence[Demand], now: float, limits: BatchLimits) -> Choice:
    """Choose the batch of the next estimator call."""
    ready = sorted(
        (demand for demand in demands if demand.starts_at <= now),
        key=lambda demand: (demand.due, demand.asked_at, demand.key),
    )
    held = [demand.starts_at for demand in demands if demand.starts_at > now]
    keys: list[int] = []
    rows = 0
    for demand in ready:
        total = rows + demand.rows
        free = total <= limits.free_rows
        urgent = demand.due <= now + limits.urgent_s
        if keys and (total > limits.rows or not (free or urgent)):
            break
        keys.append(demand.key)
        rows = total
    return Choice(tuple(keys), min(held, default=None))
