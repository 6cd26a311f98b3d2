"""First-packet latency and gaps against the number of simultaneous listeners.

Callers arrive at random times at a real server over WebSocket, (a) with their whole text at once
and (b) with 20 words a second. For each count of callers: first-packet latency from the first text
sent to the first audio received (p50, p95, p99), moments at which a listener at normal speed would
have run dry, and where the time of the first packet goes. Server and clients share the machine.

The floor is what one caller's first packet costs when each stage runs alone: LM steps needed times
the step time, one flow hop, vocoder and watermark.
"""

from __future__ import annotations

import asyncio
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antiphon.server.cli.conversation import Turn, speak
from antiphon.server.cli.local_server import local_server
from antiphon.server.config import CosyVoiceEngineSection, load_config
from bench.floor import Floor, measure_floor
from bench.report import Row, publish, switches

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TEXTS = (
    "The train to Brighton leaves from platform four, and the next one goes in half an hour.",
    "Thank you for calling, I can see your order here and it should arrive tomorrow morning.",
    "Let me check that for you, it will only take a moment while I look at the calendar.",
    "Your table is booked for two people on Thursday evening, and the kitchen closes at ten.",
    "The weather will be mostly sunny today, with a little rain near the coast after lunch.",
    "I have sent the form to your address, please sign it and bring it along on Monday.",
)
ARRIVALS_S = 2.0
"""Callers of a round arrive within so many seconds."""
STAGES = ("text", "lm", "queue", "flow", "model", "vocoder", "watermark", "encode")
BYTES_A_SECOND = 48_000


@dataclass(slots=True)
class Measured:
    """What the callers of one setting saw."""

    sessions: int
    words_per_second: float
    first_ms: list[float] = field(default_factory=list)
    after_text_ms: list[float] = field(default_factory=list)
    gaps: int = 0
    stages: list[dict[str, float]] = field(default_factory=list)

    def add(self, turn: Turn) -> None:
        """Take note of one turn."""
        assert turn.first_packet_ms is not None
        stages = dict(turn.done["first_packet_stages_ms"])
        self.first_ms.append(turn.first_packet_ms)
        self.after_text_ms.append(turn.first_packet_ms - stages.get("text", 0.0))
        self.stages.append(stages)
        self.gaps += gaps(turn)

    def row(self) -> Row:
        """Return the figures as a table row."""
        mean = self.mean_stages()
        return {
            "sessions": self.sessions,
            "text": f"{self.words_per_second:g} words/s" if self.words_per_second else "at once",
            "turns": len(self.first_ms),
            "p50 ms": percentile(self.first_ms, 50),
            "p95 ms": percentile(self.first_ms, 95),
            "p99 ms": percentile(self.first_ms, 99),
            "p50 after text ms": percentile(self.after_text_ms, 50),
            "gaps": self.gaps,
            **{f"{stage} ms": mean[stage] for stage in (*STAGES, "send") if stage in mean},
        }

    def mean_stages(self) -> dict[str, float]:
        """Return the mean milliseconds of each stage; `send` is what they leave: the messages of
        client and server, and what both loops were late."""
        known = {name for stages in self.stages for name in stages}
        mean = {
            name: statistics.fmean(stages.get(name, 0.0) for stages in self.stages)
            for name in STAGES
            if name in known
        }
        return mean | {"send": statistics.fmean(self.first_ms) - sum(mean.values())}


def percentile(values: list[float], percent: int) -> float:
    """Return the nearest-rank percentile."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, -(-len(ordered) * percent // 100) - 1)]


def gaps(turn: Turn) -> int:
    """Count the moments at which a listener who plays from the first packet on runs dry."""
    count = 0
    dry_at = turn.arrivals[0] + len(turn.messages[0]) / BYTES_A_SECOND
    for arrival, message in zip(turn.arrivals[1:], turn.messages[1:], strict=True):
        if arrival > dry_at:
            count += 1
            dry_at = arrival
        dry_at += len(message) / BYTES_A_SECOND
    return count


async def measure(
    url: str,
    voice: str | None,
    sessions: int,
    words_per_second: float,
    rounds: int,
    *,
    enough: Callable[[Measured], bool] = lambda _: False,
) -> Measured:
    """Run rounds of `sessions` callers that arrive at random, until there is `enough`."""
    rng = random.Random(sessions)
    measured = Measured(sessions, words_per_second)

    async def caller(number: int) -> None:
        if sessions > 1:
            await asyncio.sleep(rng.uniform(0, ARRIVALS_S))
        config: dict[str, Any] = {"seed": number} | ({"voice": voice} if voice else {})
        text = TEXTS[number % len(TEXTS)]
        measured.add(await speak(url, text, config, words_per_second=words_per_second))

    for start in range(0, rounds * sessions, sessions):
        await asyncio.gather(*(caller(start + number) for number in range(sessions)))
        if enough(measured):
            break
    return measured


def draw(axes: Axes, measured: list[Measured], floor: Floor | None) -> None:
    """Draw stacked bars of where the first packet's time goes."""
    labels = [
        f"{m.sessions} caller{'s' if m.sessions > 1 else ''}\n{m.row()['text']}" for m in measured
    ]
    bars = [m.mean_stages() for m in measured]
    if floor:
        labels.append("floor")
        bars.append(floor.stages_ms())
    left = [0.0] * len(bars)
    for stage in (*STAGES, "send"):
        widths = [max(0.0, bar.get(stage, 0.0)) for bar in bars]
        if any(widths):
            axes.barh(labels, widths, left=left, label=stage)
            left = [a + b for a, b in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("mean time to the first packet, ms")
    axes.legend(ncols=4, fontsize="small")


def main(argv: list[str] | None = None) -> None:
    """Run the benchmark."""
    parser = switches(__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, default=Path("configs/preset.yaml"))
    parser.add_argument("--voice", help="the configured default if not given")
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--rounds", type=int, help="rounds of callers for each count")
    arguments = parser.parse_args(argv)
    rounds = arguments.rounds or (2 if arguments.quick else 20)
    config = load_config(arguments.config)
    measured = []
    with local_server(["--config", str(arguments.config)]) as ready:
        for sessions in arguments.sessions:
            for words_per_second in (0.0, 20.0):
                running = measure(ready["url"], arguments.voice, sessions, words_per_second, rounds)
                measured.append(asyncio.run(running))
    section = next(engine for engine in config.engines if engine.name == config.model)
    floor = None
    if isinstance(section, CosyVoiceEngineSection):
        floor = measure_floor(section, config.watermark)
        print(f"Floor: {floor.describe()}")
    publish(
        arguments,
        f"First packet, model {config.model}",
        [m.row() for m in measured],
        details={
            "config": config.resolved(),
            "floor_ms": floor.stages_ms() if floor else None,
            "first_packets_ms": [m.first_ms for m in measured],
        },
        draw=lambda axes: draw(axes, measured, floor),
    )


if __name__ == "__main__":
    main()
