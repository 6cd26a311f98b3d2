"""One estimator call over a batch of solutions that know nothing of each other."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as functional
from torch import Tensor

from antiphon.engine.flow.cached_dit import StepBatch
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
    first = solutions[0]
    # Rows that share plan and call share modulations, which then fuse with the layer norms.
    together = all(s.plan == first.plan and s.call == first.call for s in solutions)
    timed = solutions[:1] if together else solutions
    repeats = [1 if together else s.plan.guidance_rows for s in timed]
    tables = [s.table[s.call] for s in solutions]
    counts = [s.plan.guidance_rows for s in solutions]
    return StepBatch(
        x=_stack([s.point()[None] for s in solutions], counts, frames),
        base=torch.cat([_pad(s.base, frames) for s in solutions]),
        rotation=_stack([s.rotation for s in solutions], counts, frames),
        layer_modulation=_repeat([s.modulations.layers[s.call][None] for s in timed], repeats),
        last_modulation=_repeat([s.modulations.last[s.call][None] for s in timed], repeats),
        tails=torch.cat([s.tails_before[s.call] for s in solutions]),
        table=torch.cat([functional.pad(t, (0, chunks - t.shape[1])) for t in tables]),
        own_pages=torch.cat([table[:, -1] for table in tables]),
        seen=[s.seen for s, count in zip(solutions, counts, strict=True) for _ in range(count)],
    )


def _stack(parts: Sequence[Tensor], counts: Sequence[int], frames: int) -> Tensor:
    """Repeat each (1, frames, …) for its guidance rows and pad all to the same length."""
    return _repeat([_pad(part, frames) for part in parts], counts)


def _repeat(parts: Sequence[Tensor], counts: Sequence[int]) -> Tensor:
    """Repeat each (1, …) on the first dimension and join them."""
    expanded = [
        part.expand(count, *part.shape[1:]) for part, count in zip(parts, counts, strict=True)
    ]
    return expanded[0] if len(expanded) == 1 else torch.cat(expanded)


def _pad(part: Tensor, frames: int) -> Tensor:
    """Pad (rows, frames, channels) with zeros at the end."""
    missing = frames - part.shape[1]
    return functional.pad(part, (0, 0, 0, missing)) if missing else part
