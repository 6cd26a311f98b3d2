"""One estimator call over a batch of solutions that know nothing of each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as functional
from torch import Tensor

from antiphon.engine.flow.cache import PagePool
from antiphon.engine.flow.cached_dit import CachedDiT, StepBatch, Vectors
from antiphon.engine.flow.flow import Flow
from antiphon.engine.flow.stream import ChunkSolution, FlowStreamer

Velocity = Callable[[StepBatch, PagePool], tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True)
class Buckets:
    """Shapes are rounded up to multiples of these, so that few recur and each can be captured.

    On a CPU padding is paid for and shapes are free: 1 each.
    """

    rows: int = 1
    frames: int = 1
    chunks: int = 1

    def round_rows(self, count: int) -> int:
        """Rows of the batch: a multiple, and beyond it a power of two of multiples."""
        rounded = self.rows
        while rounded < count:
            rounded *= 2
        return rounded if self.rows > 1 else count


class CachedFlow(FlowStreamer):
    """The streamer with its estimator calls, as the acoustic engine takes it."""

    def __init__(
        self,
        flow: Flow,
        pool: PagePool,
        *,
        buckets: Buckets | None = None,
        velocity: Callable[[CachedDiT], Velocity] | None = None,
    ) -> None:
        super().__init__(flow, pool)
        self._buckets = buckets or Buckets()
        self._velocity: Velocity = velocity(self.dit) if velocity else self.dit.velocity

    def solve_step(self, solutions: Sequence[ChunkSolution]) -> None:
        """Advance every solution by one call, each at its own place in its own plan."""
        with torch.inference_mode():
            batch = make_batch(solutions, self._buckets, self.pool.frames)
            velocities, tails = self._velocity(batch, self.pool)
            row = 0
            for solution in solutions:
                rows = slice(row, row + solution.plan.guidance_rows)
                # A row shorter than the batch has tails of its padding; only full chunks use
                # theirs, and those are as long as a batch can be.
                solution.take(velocities[rows, : solution.frames], tails[rows])
                row = rows.stop


def solve(streamer: CachedFlow, solution: ChunkSolution) -> None:
    """Make all calls of one solution."""
    while not solution.done:
        streamer.solve_step([solution])


def make_batch(
    solutions: Sequence[ChunkSolution], buckets: Buckets, chunk_frames: int
) -> StepBatch:
    """Stack the rows of all solutions, padded to the longest and to the bucket."""
    counts = [s.plan.guidance_rows for s in solutions]
    spare = buckets.round_rows(sum(counts)) - sum(counts)
    frames = _multiple(max(s.frames for s in solutions), buckets.frames)
    chunks = _multiple(max(s.table.shape[2] for s in solutions), buckets.chunks)
    seen = [s.seen for s, count in zip(solutions, counts, strict=True) for _ in range(count)]
    seen += [frames] * spare
    padded = buckets != Buckets() or min(seen) != max(seen)
    keys = chunks * chunk_frames if padded else max(seen)
    tables = [s.table[s.call] for s in solutions]
    alone = len(solutions) == 1 and not spare
    device = solutions[0].x.device
    return StepBatch(
        x=_spare(_join([s.point()[None] for s in solutions], frames), 0),
        rows=None if alone else _rows_of(counts, spare, device),
        base=_spare(_join([s.base for s in solutions], frames), spare),
        rotation=_spare(
            _join(_repeat([s.rotation for s in solutions], counts, alone=alone), frames), spare
        ),
        modulation=_modulation(solutions, counts, spare),
        tails=_spare(_joined([s.tails_before[s.call] for s in solutions]), spare),
        table=_spare(_joined([functional.pad(t, (0, chunks - t.shape[1])) for t in tables]), spare),
        own_pages=_spare(_joined([table[:, -1] for table in tables]), spare),
        keys=keys,
        mask=_mask(seen, keys, device) if padded else None,
    )


def _mask(seen: Sequence[int], keys: int, device: torch.device) -> Tensor:
    limits = torch.tensor(seen, device=device)[:, None]
    return (torch.arange(keys, device=device) < limits)[:, None, None]


def _modulation(
    solutions: Sequence[ChunkSolution], counts: Sequence[int], spare: int
) -> Sequence[Vectors]:
    """Rows that share plan and call share vectors, which then fuse with the layer norms."""
    first = solutions[0]
    if not spare and all(s.plan == first.plan and s.call == first.call for s in solutions):
        return first.modulations.vectors[first.call]
    layers = _repeat([s.modulations.layers[s.call][None] for s in solutions], counts)
    last = _repeat([s.modulations.last[s.call][None] for s in solutions], counts)
    each = [
        tuple(layer[:, :, None].unbind(1)) for layer in _spare(_joined(layers), spare).unbind(1)
    ]
    return [*each, tuple(_spare(_joined(last), spare)[:, :, None].unbind(1))]


def _rows_of(counts: Sequence[int], spare: int, device: torch.device) -> Tensor:
    numbers = [number for number, count in enumerate(counts) for _ in range(count)]
    return torch.tensor(numbers + [0] * spare, device=device)


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


def _spare(rows: Tensor, count: int) -> Tensor:
    """Add rows of zeros, which read and write page 0 only."""
    return torch.cat([rows, rows.new_zeros(count, *rows.shape[1:])]) if count else rows


def _multiple(count: int, of: int) -> int:
    return -(-count // of) * of
