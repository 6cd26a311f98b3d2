"""Compute per second of audio against the length of the utterance, ours and full recomputation.

One utterance is spoken in equal hops of one attention chunk: with the caches, for several limits of
left context, and with everything computed again at each hop as upstream does (its schedule of
growing hops, its vocoder over all mel so far). The price of a limit is the distance of its mel from
that of unlimited context. Times are processor seconds of one thread. A second table compares first
packets and compute with full recomputation (see recomputation.py).

    python -m bench.growth --model DIR --json growth.json --plot growth.png
"""

from __future__ import annotations

import argparse
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from antiphon.engine.acoustic.core import Stream
from antiphon.engine.acoustic.interface import CHUNK_TOKENS, LOOK_AHEAD_TOKENS, AcousticSettings
from antiphon.engine.checkpoint import Checkpoint
from antiphon.engine.voice.voice import AcousticPrompt
from bench.acoustic_lab import Lab, model_switch, open_model, speech_codes, voices
from bench.recomputation import COMPARED_S, TOKENS_A_SECOND, UPSTREAM_HOPS, compare
from bench.report import Row, print_table, publish, switches

if TYPE_CHECKING:
    from matplotlib.axes import Axes

EARLY, LATE = (10, 15), (55, 60)
REPETITIONS = 5
UNLIMITED = AcousticSettings(left_context_chunks=None)


@dataclass(frozen=True)
class Growth:
    """One way of computing: processor seconds for each second of audio as it grows."""

    name: str
    seconds: list[float]
    """Length of the utterance after each hop."""
    cost: list[float]
    """Processor seconds of that hop per second of audio in it."""
    session_mib: float = 0.0
    early: float | None = None
    """Cost over seconds 10 to 15, and over 55 to 60: medians of runs taken in turn."""
    late: float | None = None

    def total(self, upto: float) -> float:
        """Processor seconds for the first `upto` seconds of audio."""
        lengths = np.diff([0.0, *self.seconds])
        return float(sum(c * n for s, c, n in zip(self.seconds, self.cost, lengths, strict=True)
                         if s <= upto + 1e-6))  # fmt: skip


def incremental(
    lab: Lab, prompt: AcousticPrompt, tokens: list[int], left_context: int | None
) -> Growth:
    """Speak with caches, a chunk at a time."""
    settings = AcousticSettings(left_context_chunks=left_context)
    lab.warm(prompt, settings)
    stream = lab.open(prompt, settings)
    seconds, cost, largest = [], [], 0
    kept: dict[int, Stream] = {}
    for start in range(0, len(tokens), CHUNK_TOKENS):
        if start // TOKENS_A_SECOND in (EARLY[0], LATE[0]):
            kept[start // TOKENS_A_SECOND] = copy(stream)
        hop = tokens[start : start + CHUNK_TOKENS]
        _, spent = lab.speak(stream, hop, final=start + CHUNK_TOKENS >= len(tokens))
        seconds.append((start + len(hop)) / TOKENS_A_SECOND)
        cost.append(spent / (len(hop) / TOKENS_A_SECOND))
        largest = max(largest, stream.nbytes)
    name = "all chunks" if left_context is None else f"{left_context} chunks"
    early, late = _in_turn(lab, kept, tokens) if len(kept) == 2 else (None, None)
    return Growth(name, seconds, cost, largest / 2**20, early, late)


def _in_turn(lab: Lab, kept: dict[int, Stream], tokens: list[int]) -> tuple[float, float]:
    """Speak both stretches again and again, one after the other.

    A stream is a value: its copy goes on from where it was taken. Taking turns keeps what else the
    machine does out of the ratio.
    """
    costs: dict[int, list[float]] = {start: [] for start in kept}
    for _ in range(REPETITIONS):
        for start, stream in kept.items():
            again, spent = copy(stream), 0.0
            for hop in range(EARLY[1] - EARLY[0]):
                at = (start + hop) * TOKENS_A_SECOND
                spent += lab.speak(again, tokens[at : at + CHUNK_TOKENS], final=False)[1]
            costs[start].append(spent / (EARLY[1] - EARLY[0]))
    early, late = (float(np.median(costs[start])) for start in sorted(costs))
    return early, late


def recomputing(lab: Lab, prompt: AcousticPrompt, tokens: list[int]) -> Growth:
    """Compute prompt and everything so far again at each of upstream's hops."""
    seconds, cost = [], []
    given = number = 0
    while given < len(tokens):
        hop = UPSTREAM_HOPS[min(number, len(UPSTREAM_HOPS) - 1)]
        number += 1
        before, given = given, min(len(tokens), given + hop)
        seen = tokens[: min(len(tokens), given + LOOK_AHEAD_TOKENS)]
        lab.core.forget_voice(prompt.key)
        stream = lab.open(prompt, UNLIMITED)
        _, spent = lab.speak(stream, seen, final=given == len(tokens))
        seconds.append(given / TOKENS_A_SECOND)
        cost.append(spent / ((given - before) / TOKENS_A_SECOND))
    return Growth("recomputed", seconds, cost)


def mel_distance(
    lab: Lab, prompts: list[AcousticPrompt], tokens: list[int], left_context: int
) -> float:
    """Mean absolute difference (natural log) from unlimited context, over the voices."""
    hops = [CHUNK_TOKENS] * (len(tokens) // CHUNK_TOKENS)
    limited = AcousticSettings(left_context_chunks=left_context)
    differences = [
        (lab.mel(p, tokens, limited, hops) - lab.mel(p, tokens, UNLIMITED, hops)).abs()
        for p in prompts
    ]
    return float(torch.stack([difference.mean() for difference in differences]).mean())


def rows_of(growths: list[Growth], distances: dict[str, float]) -> list[Row]:
    """One table row for each way of computing."""
    rows: list[Row] = []
    for growth in growths:
        early, late = growth.early, growth.late
        rows.append(
            {
                "left context": growth.name,
                "s/s at 10-15 s": early,
                "s/s at 55-60 s": late,
                "ratio": None if early is None or late is None else late / early,
                "20 s in all, s": growth.total(20.0),
                "MiB a session": growth.session_mib or None,
                "mel distance": distances.get(growth.name),
            }
        )
    return rows


def measure(
    arguments: argparse.Namespace, checkpoint: Checkpoint, lab: Lab
) -> tuple[list[Growth], dict[str, float]]:
    """Growth of each way of computing, and mel distances."""
    prompts = voices(checkpoint)
    length = (5 if arguments.quick else arguments.seconds) * TOKENS_A_SECOND
    tokens = speech_codes(checkpoint, length)
    limits: list[int | None] = [*arguments.left_context, None]
    growths = [incremental(lab, prompts[0], tokens, limit) for limit in limits]
    growths.append(recomputing(lab, prompts[0], tokens[: 20 * TOKENS_A_SECOND]))
    spoken = tokens[: (3 if arguments.quick else 20) * TOKENS_A_SECOND]
    distances = {
        f"{limit} chunks": mel_distance(lab, prompts[:2], spoken, limit)
        for limit in arguments.left_context
    }
    return growths, distances


def draw(axes: Axes, growths: list[Growth]) -> None:
    """Cost against length."""
    for growth in growths:
        axes.plot(growth.seconds, growth.cost, label=growth.name)
    axes.set_xlabel("length of the utterance, s")
    axes.set_ylabel("processor seconds per second of audio")
    axes.set_yscale("log")
    axes.legend()


def main(argv: list[str] | None = None) -> None:
    parser = switches(__doc__ or "")
    model_switch(parser)
    parser.add_argument("--seconds", type=int, default=60, help="length of the utterance")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--left-context", type=int, nargs="*", default=[2, 4, 8])
    parser.add_argument("--first-hop", type=int, default=12, help="ours, for the first packets")
    parser.add_argument("--steps", type=int, default=10, help="of the solver, for the same")
    parser.add_argument("--rounds", type=int, help="of first packets; 0 leaves them out")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(arguments.threads)
    checkpoint = open_model(arguments)
    lab = Lab.of(checkpoint)
    growths, distances = measure(arguments, checkpoint, lab)
    rounds = (2 if arguments.quick else 10) if arguments.rounds is None else arguments.rounds
    compared: list[Row] = []
    details: dict[str, object] = {}
    if rounds:
        length = (5 if arguments.quick else COMPARED_S) * TOKENS_A_SECOND
        title, compared, details = compare(
            lab,
            checkpoint,
            speech_codes(checkpoint, length),
            AcousticSettings(steps=arguments.steps),
            first_hop=arguments.first_hop,
            rounds=rounds,
        )
        print_table(title, compared)
    publish(
        arguments,
        "Compute per second of audio against length",
        rows_of(growths, distances),
        details={
            "growth": [growth.__dict__ for growth in growths],
            "recomputation": compared,
            **details,
        },
        draw=lambda axes: draw(axes, growths),
    )


if __name__ == "__main__":
    main()
