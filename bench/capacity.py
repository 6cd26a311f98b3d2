"""How many listeners a server has room for: zero gaps, and a first packet in time at the 95th
percentile.

Rounds of callers arrive at random at a real server over WebSocket, as in `first_packet.py`, with
their texts at once. The number is doubled until a round fails, then halved in between; the largest
that was served is the capacity. A number fails as soon as one listener ran dry or too many were
late: its other rounds are left out. Where the time is up (--limit), what was served until then is
reported, and that it may be more. Server and clients share the machine.

    python -m bench.capacity --config configs/nano.yaml --json capacity.json --plot capacity.png
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.server.cli.local_server import local_server
from antiphon.server.config import load_config
from bench.first_packet import Measured, measure, percentile
from bench.report import Row, publish, switches
from bench.search import next_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def served(measured: Measured, bound_ms: float) -> bool:
    """Whether nobody ran dry and the first packets were in time."""
    return measured.gaps == 0 and percentile(measured.first_ms, 95) <= bound_ms


def failed(measured: Measured, bound_ms: float, turns: int) -> bool:
    """Whether it cannot be served any more, whatever the rest of so many turns brings."""
    late = sum(first > bound_ms for first in measured.first_ms)
    return measured.gaps > 0 or late > turns - -(-turns * 95 // 100)


@dataclass(frozen=True, slots=True)
class Found:
    """What a search came to."""

    capacity: int
    settled: bool
    """Whether one more was tried and failed; else it may be more."""


def search(try_count: Callable[[int], bool | None], most: int) -> Found:
    """Return the largest count up to `most` that succeeds, if whoever serves more serves fewer.

    Doubles from 1 and then halves the interval; 0 where not even one succeeds. `try_count` says
    None where there is no time left.
    """
    good, bad = 0, most + 1
    while (count := next_count(good, bad, most)) is not None:
        fits = try_count(count)
        if fits is None:
            return Found(good, settled=False)
        if fits:
            good = count
        else:
            bad = count
    return Found(good, settled=bad <= most)


class Attempts:
    """Measures counts of callers until the time is up."""

    def __init__(self, url: str, arguments: argparse.Namespace, rounds: int) -> None:
        self._url = url
        self._arguments = arguments
        self._rounds = rounds
        self._until = time.monotonic() + 60 * arguments.limit
        self.measured: list[Measured] = []

    def __call__(self, count: int) -> bool | None:
        """Whether so many are served; None where the time did not suffice to say so."""
        left_s = self._until - time.monotonic()
        bound_ms, turns = self._arguments.bound_ms, self._rounds * count
        running = measure(
            self._url,
            self._arguments.voice,
            count,
            0.0,
            self._rounds,
            enough=lambda so_far: failed(so_far, bound_ms, turns),
        )
        try:
            measured = asyncio.run(asyncio.wait_for(running, max(left_s, 0.01)))
        except TimeoutError:
            return None
        self.measured.append(measured)
        return served(measured, bound_ms)


def row(measured: Measured, bound_ms: float) -> Row:
    """Return the figures of one count as a table row."""
    return {
        "sessions": measured.sessions,
        "turns": len(measured.first_ms),
        "p50 ms": percentile(measured.first_ms, 50),
        "p95 ms": percentile(measured.first_ms, 95),
        "gaps": measured.gaps,
        "served": served(measured, bound_ms),
    }


def draw(axes: Axes, measured: list[Measured], bound_ms: float) -> None:
    """Draw first packets and gaps against the number of callers."""
    ordered = sorted(measured, key=lambda one: one.sessions)
    counts = [one.sessions for one in ordered]
    axes.plot(counts, [percentile(one.first_ms, 50) for one in ordered], ".-", label="p50")
    axes.plot(counts, [percentile(one.first_ms, 95) for one in ordered], ".-", label="p95")
    axes.axhline(bound_ms, linestyle=":", color="black", label="bound")
    for one in ordered:
        if one.gaps:
            axes.annotate(f"{one.gaps} gaps", (one.sessions, percentile(one.first_ms, 95)))
    axes.set_xlabel("callers")
    axes.set_ylabel("first packet, ms")
    axes.legend()


def main(argv: list[str] | None = None) -> None:
    """Run the benchmark."""
    parser = switches(__doc__ or "")
    parser.add_argument("--config", type=Path, default=Path("configs/preset.yaml"))
    parser.add_argument("--voice", help="the configured default if not given")
    parser.add_argument("--bound-ms", type=float, default=300.0, help="p95 that counts as served")
    parser.add_argument("--most", type=int, default=64, help="callers to stop at")
    parser.add_argument("--rounds", type=int, help="rounds of callers for each count")
    parser.add_argument("--limit", type=float, help="minutes after which no more is tried")
    arguments = parser.parse_args(argv)
    rounds = arguments.rounds or (1 if arguments.quick else 5)
    arguments.limit = arguments.limit or (1.0 if arguments.quick else 10.0)
    config = load_config(arguments.config)
    most = min(arguments.most, config.server.limits.max_sessions, 2 if arguments.quick else 1 << 20)
    with local_server(["--config", str(arguments.config)]) as ready:
        attempts = Attempts(ready["url"], arguments, rounds)
        found = search(attempts, most)
    tried = attempts.measured
    publish(
        arguments,
        f"Capacity of model {config.model}: {'' if found.settled else 'at least '}"
        f"{found.capacity} sessions",
        [row(one, arguments.bound_ms) for one in tried],
        details={
            "capacity": found.capacity,
            "settled": found.settled,
            "bound_ms": arguments.bound_ms,
            "most": most,
        },
        draw=lambda axes: draw(axes, tried, arguments.bound_ms),
    )


if __name__ == "__main__":
    main()
