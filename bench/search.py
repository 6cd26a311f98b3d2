"""The search for how many a machine has room for: double, then halve in between. Free of I/O."""

from __future__ import annotations


def next_count(good: int, bad: int, most: int) -> int | None:
    """Return the count to try next, or None once nothing lies between.

    `good` is the largest count that succeeded (0: none yet), `bad` the smallest that failed
    (`most` + 1: none yet). Whoever serves more is assumed to serve fewer.
    """
    if bad - good <= 1:
        return None
    return min(2 * good or 1, most) if bad > most else (good + bad) // 2
