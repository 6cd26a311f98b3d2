"""How many listeners a server has room for: zero gaps, and a first packet in time at the 95th
percentile.

Rounds of callers arrive at random at a real server over WebSocket, as in `first_packet.py`, with
their texts at once. The number is doubled until a round fails, then halved in between; the largest
that was served is the capacity. Server and clients share the machine.

    python -m bench.capacity --config configs/nano.yaml --json capacity.json --plot capacity.png
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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


def search(try_count: Callable[[int], bool], most: int) -> int:
    """Return the largest count up to `most` that succeeds, if whoever serves more serves fewer.

    Doubles from 1 and then halves the interval; 0 where not even one succeeds.
    """
    good, bad = 0, most + 1
    while (count := next_count(good, bad, most)) is not None:
        if try_count(count):
            good = count
        else:
            bad = count
    return good


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


def main() -> None:
    """Run the benchmark."""
    parser = switches(__doc__ or "")
    parser.add_argument("--config", type=Path, default=Path("configs/preset.yaml"))
    parser.add_argument("--voice", help="the configured default if not given")
    parser.add_argument("--bound-ms", type=float, default=300.0, help="p95 that counts as served")
    parser.add_argument("--most", type=int, default=64, help="callers to stop at")
    parser.add_argument("--rounds", type=int, help="rounds of callers for each count")
    arguments = parser.parse_args()
    rounds = arguments.rounds or (2 if arguments.quick else 5)
    config = load_config(arguments.config)
    most = min(arguments.most, config.server.limits.max_sessions)
    tried: list[Measured] = []
    with local_server(["--config", str(arguments.config)]) as ready:

        def try_count(count: int) -> bool:
            running = measure(ready["url"], arguments.voice, count, 0.0, rounds)
            tried.append(asyncio.run(running))
            return served(tried[-1], arguments.bound_ms)

        capacity = search(try_count, most)
    publish(
        arguments,
        f"Capacity of model {config.model}: {capacity} sessions",
        [row(one, arguments.bound_ms) for one in tried],
        details={"capacity": capacity, "bound_ms": arguments.bound_ms, "most": most},
        draw=lambda axes: draw(axes, tried, arguments.bound_ms),
    )


if __name__ == "__main__":
    main()
