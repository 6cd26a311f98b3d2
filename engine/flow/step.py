"""One estimator call over a batch of solutions that know nothing of each other."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as functional
from torch import Tensor

from antiphon.engine.flow.cached_dit import StepBatch, Vectors
from antiphon.engine.flow.stream import ChunkSolution, FlowStreamer


def solve_step(streamer: FlowStreamer, solutions: Sequence[ChunkSolution]) -> None:
    """Advance every solution by one call, each at its own place in its own plan."""
    with torch.inference_mode():
        batch = _batch(solutions)
        velocities, tails = streamer.dit.velocity(batch, streamer.pool)
        row = 0
        for solution in solutions:
            rows = slice(row, row + solution.plan.guidance_rows)
            # A row shorter than the batch has tails of its padding; only full chunks use theirs,
            # and those are as long as a batch can be.
            solution.take(velocities[rows, : solution.frames], tails[rows])
            row = rows.stop


class CachedFlow(FlowStreamer):
    """The streamer with its estimator calls, as the acoustic engine takes it."""

    def solve_step(self, solutions: Sequence[ChunkSolution]) -> None:
        """Advance every solution by one call, each at its own place in its own plan."""
        solve_step(self, solutions)


def solve(streamer: FlowStreamer, solution: ChunkSolution) -> None:
    """Make all calls of one solution."""
    while not solution.done:
        solve_step(streamer, [solution])


def _batch(solutions: Sequence[ChunkSolution]) -> StepBatch:
    """Stack the rows of all solutions, padded to the longest."""
    frames = max(solution.frames for solution in solutions)
    chunks = max(solution.table.shape[2] for solution in solutions)
    counts = [s.plan.guidance_rows for s in solutions]
    tables = [s.table[s.call] for s in solutions]
    alone = len(solutions) == 1
    return StepBatch(
        x=_join([s.point()[None] for s in solutions], frames),
        rows=None if alone else _rows_of(counts, solutions[0].x.device),
        base=_join([s.base for s in solutions], frames),
        rotation=_join(_repeat([s.rotation for s in solutions], counts, alone=alone), frames),
        modulation=_modulation(solutions, counts),
        tails=_joined([s.tails_before[s.call] for s in solutions]),
        table=_joined([functional.pad(t, (0, chunks - t.shape[1])) for t in tables]),
        own_pages=_joined([table[:, -1] for table in tables]),
        seen=[s.seen for s, count in zip(solutions, counts, strict=True) for _ in range(count)],
    )


def _modulation(solutions: Sequence[ChunkSolution], counts: Sequence[int]) -> Sequence[Vectors]:
    """Rows that share plan and call share vectors, which then fuse with the layer norms."""
    first = solutions[0]
    if all(s.plan == first.plan and s.call == first.call for s in solutions):
        return first.modulations.vectors[first.call]
    layers = torch.cat(_repeat([s.modulations.layers[s.call][None] for s in solutions], counts))
    last = torch.cat(_repeat([s.modulations.last[s.call][None] for s in solutions], counts))
    each = [tuple(layer[:, :, None].unbind(1)) for layer in layers.unbind(1)]
    return [*each, tuple(last[:, :, None].unbind(1))]


def _rows_of(counts: Sequence[int], device: torch.device) -> Tensor:
    numbers = [number for number, count in enumerate(counts) for _ in range(count)]
    return torch.tensor(numbers, device=device)


def _repeat(parts: list[Tensor], counts: Sequence[int], *, alone: bool = False) -> list[Tensor]:
    """Expand each (1, …) to its guidance rows, unless there is one to broadcast from."""
    if alone:
        return parts
    return [part.expand(count, *part.shape[1:]) for part, count in zip(parts, counts, strict=True)]


def _join(parts: list[Tensor], frames: int) -> Tensor:
    """Join (rows, frames, …) parts, padded with zeros to the same number of frames."""
    padded = []
    for part in parts:
        missing = frames - part.shape[1]
        if missing:
            zeros = part.new_zeros(part.shape[0], missing, *part.shape[2:])
            part = torch.cat([part, zeros], dim=1)
        padded.append(part)
    return _joined(padded)


def _joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
