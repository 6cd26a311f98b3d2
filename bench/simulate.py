"""Arrival traces through the engine's own policy, with measured step times instead of a device.

Sessions arrive at random, their tokens come at the speed of a speech LM, and every estimator call
is given to whom `engine/acoustic/policy.py` chooses. The clock is simulated: a call takes what the
step times say, so that a GPU's load is studied on a laptop in seconds.

    python -m bench.simulate --sessions 1 4 16 64 --base-ms 3 --row-ms 0.02
    python -m bench.simulate --times full_size.json        # as full_size.py measured them
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from antiphon.engine.acoustic.interface import CHUNK_TOKENS, LOOK_AHEAD_TOKENS
from antiphon.engine.acoustic.policy import BatchLimits, Demand, choose
from antiphon.engine.hops import SECONDS_A_TOKEN, HopPlan, HopSettings
from bench.report import publish, switches

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class StepTimes:
    """What one estimator call and one hop's vocoder take, in seconds."""

    base_s: float = 0.003
    """A call with one session."""
    row_s: float = 0.00002
    """Added by each further row."""
    vocoder_s: float = 0.004
    """A hop's vocoder."""
    vocoder_row_s: float = 0.004
    """Added by each further hop that ends with the same call; on a CPU as much as the first."""

    def call(self, rows: int) -> float:
        """Seconds of one call."""
        return self.base_s + max(0, rows - 2) * self.row_s

    def vocoder(self, hops: int) -> float:
        """Seconds of the vocoder for hops that end together."""
        return self.vocoder_s + (hops - 1) * self.vocoder_row_s if hops else 0.0


@dataclass(frozen=True, slots=True)
class Load:
    """Who comes, and when."""

    sessions: int
    """Turns that are spoken at the same time, on average."""
    utterance_s: float = 8.0
    turns: int = 200
    lm_first_s: float = 0.02
    lm_tokens_a_second: float = 100.0
    steps: int = 10
    lead_s: float | None = None
    seed: int = 0


@dataclass(slots=True)
class SimulatedTurn:
    """One turn: what it was given, what of it was heard."""

    arrived: float
    tokens: int
    plan: HopPlan
    load: Load
    given: int = 0
    calls_left: int = 0
    hop_tokens: int = 0
    asked_at: float = 0.0
    first_audio: float | None = None
    audio_s: float = 0.0
    gaps: int = 0

    @property
    def done(self) -> bool:
        """Whether all was spoken."""
        return self.given == self.tokens

    @property
    def runs_dry_at(self) -> float | None:
        """When the listener has heard everything."""
        return None if self.first_audio is None else self.first_audio + self.audio_s

    def ready_at(self, now: float) -> float:
        """When the LM has what the next hop wants."""
        self.hop_tokens = min(self.plan.wanted(), self.tokens - self.given)
        spoken = self.given + self.hop_tokens
        return max(now, self.arrived + self.load.lm_first_s + spoken / self.load.lm_tokens_a_second)

    def ask(self, now: float) -> None:
        """Start a hop: one solution for each chunk it touches."""
        self.asked_at = now
        before = self.given - LOOK_AHEAD_TOKENS if self.given else 0
        after = self.given + self.hop_tokens - LOOK_AHEAD_TOKENS
        chunks = -(-after // CHUNK_TOKENS) - before // CHUNK_TOKENS
        self.calls_left = max(1, chunks) * self.load.steps

    def heard(self, now: float) -> None:
        """A hop is done."""
        dry = self.runs_dry_at
        if dry is not None and now > dry:
            self.gaps += 1
            self.first_audio = (self.first_audio or 0.0) + now - dry
        if self.first_audio is None:
            self.first_audio = now
        self.plan.took(self.hop_tokens)
        self.given += self.hop_tokens
        held_back = 0 if self.done else LOOK_AHEAD_TOKENS + 3.5
        self.audio_s = max(0.0, (self.given - held_back) * SECONDS_A_TOKEN)


@dataclass(slots=True)
class Outcome:
    """What the listeners got."""

    first_packet_s: list[float] = field(default_factory=list)
    gaps: int = 0
    busy_s: float = 0.0
    length_s: float = 0.0


def arrivals(load: Load) -> list[float]:
    """Random (Poisson) arrivals that keep `sessions` turns alive on average."""
    generator = random.Random(load.seed)
    now, times = 0.0, []
    for _ in range(load.turns):
        now += generator.expovariate(load.sessions / load.utterance_s)
        times.append(now)
    return times


def simulate(load: Load, times: StepTimes, limits: BatchLimits, hops: HopSettings) -> Outcome:
    """Run one trace to its end."""
    outcome = Outcome()
    tokens = round(load.utterance_s / SECONDS_A_TOKEN)
    coming: list[tuple[float, int, SimulatedTurn]] = []
    for number, arrived in enumerate(arrivals(load)):
        turn = SimulatedTurn(arrived, tokens, HopPlan(hops), load)
        heapq.heappush(coming, (turn.ready_at(arrived), number, turn))
    working: dict[int, SimulatedTurn] = {}
    now = 0.0
    while coming or working:
        while coming and coming[0][0] <= now:
            ready, number, turn = heapq.heappop(coming)
            turn.ask(ready)
            working[number] = turn
        demands = [
            Demand(number, turn.asked_at, turn.runs_dry_at, load.lead_s)
            for number, turn in working.items()
        ]
        choice = choose(demands, now, limits)
        if not choice.keys:
            waits = [wait for wait in (choice.wake_at, coming[0][0] if coming else None) if wait]
            now = max(now, min(waits))
            continue
        spent = times.call(2 * len(choice.keys))
        for number in choice.keys:
            working[number].calls_left -= 1
        ended = [number for number in choice.keys if not working[number].calls_left]
        spent += times.vocoder(len(ended))
        for number in ended:
            _finish_hop(working.pop(number), number, now + spent, outcome, coming)
        now += spent
        outcome.busy_s += spent
    outcome.length_s = now
    return outcome


def _finish_hop(
    turn: SimulatedTurn,
    number: int,
    now: float,
    outcome: Outcome,
    coming: list[tuple[float, int, SimulatedTurn]],
) -> None:
    first = turn.first_audio is None
    turn.heard(now)
    if first:
        outcome.first_packet_s.append(now - turn.arrived)
    if turn.done:
        outcome.gaps += turn.gaps
    else:
        heapq.heappush(coming, (turn.ready_at(now), number, turn))


def row(load: Load, outcome: Outcome) -> dict[str, float | int]:
    """One line of the table."""
    p50, p95, p99 = np.percentile(outcome.first_packet_s, [50, 95, 99]) * 1000
    return {
        "sessions": load.sessions,
        "first packet p50, ms": float(p50),
        "p95, ms": float(p95),
        "p99, ms": float(p99),
        "gaps": outcome.gaps,
        "busy": outcome.busy_s / outcome.length_s,
    }


def draw(axes: Axes, rows: Sequence[dict[str, float | int]]) -> None:
    """First packet against sessions."""
    sessions = [line["sessions"] for line in rows]
    for name in ("first packet p50, ms", "p95, ms", "p99, ms"):
        axes.plot(sessions, [line[name] for line in rows], ".-", label=name)
    axes.set_xlabel("turns spoken at once")
    axes.set_xscale("log", base=2)
    axes.legend()


def read_times(arguments: argparse.Namespace) -> StepTimes:
    """Step times from switches or from a file of full_size.py."""
    if arguments.times:
        return StepTimes(**json.loads(arguments.times.read_text())["step_times"])
    further_ms = arguments.vocoder_ms
    if arguments.vocoder_row_ms is not None:
        further_ms = arguments.vocoder_row_ms
    return StepTimes(
        arguments.base_ms / 1000,
        arguments.row_ms / 1000,
        arguments.vocoder_ms / 1000,
        further_ms / 1000,
    )


def main(argv: list[str] | None = None) -> None:
    parser = switches(__doc__ or "")
    parser.add_argument("--sessions", type=int, nargs="*", default=[1, 4, 16, 64])
    parser.add_argument("--times", type=Path, help="JSON written by full_size.py")
    parser.add_argument("--base-ms", type=float, default=3.0, help="a call with one session")
    parser.add_argument("--row-ms", type=float, default=0.02, help="added by each further row")
    parser.add_argument("--vocoder-ms", type=float, default=4.0, help="the vocoder of a hop")
    parser.add_argument("--vocoder-row-ms", type=float, help="of a further hop; as the first")
    parser.add_argument("--batch-rows", type=int, default=128)
    parser.add_argument("--free-rows", type=int, default=64)
    parser.add_argument("--first-hop", type=int, default=HopSettings().first_hop)
    parser.add_argument("--lead", type=float, help="seconds ahead of a listener (calls)")
    arguments = parser.parse_args(argv)
    times = read_times(arguments)
    limits = BatchLimits(arguments.batch_rows, free_rows=arguments.free_rows)
    hops = HopSettings(first_hop=arguments.first_hop)
    rows = []
    for sessions in arguments.sessions:
        turns = 50 if arguments.quick else max(200, 8 * sessions)
        load = Load(sessions, turns=turns, lead_s=arguments.lead)
        rows.append(row(load, simulate(load, times, limits, hops)))
    publish(
        arguments,
        "Simulated load",
        rows,
        details={"step_times": {name: getattr(times, name) for name in times.__slots__}},
        draw=lambda axes: draw(axes, rows),
    )


if __name__ == "__main__":
    main()
