"""Estimator calls captured once for each shape and replayed (CUDA graphs).

A call of the full-size estimator launches hundreds of kernels; on a GPU, launching them takes
longer than running them for one session. A captured call is launched as a whole. Batches come
rounded up by `Buckets`, so that few shapes exist; each is captured when it first occurs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TypeVar

import torch
from torch import Tensor

from antiphon.engine.flow.cache import PagePool
from antiphon.engine.flow.cached_dit import CachedDiT, StepBatch, Vectors
from antiphon.engine.flow.step import Buckets
from antiphon.engine.flow.workspace import Workspace

GPU_BUCKETS = Buckets(rows=2, frames=25, chunks=4)
"""Seven shapes of rows up to 128, two of frames, four of chunks where left context is limited."""
MOST_SHAPES = 128
"""Captured and kept; the least recently used go, as where unlimited context grows."""

T = TypeVar("T")
Result = tuple[Tensor, Tensor]
Replay = Callable[[], Result]
Record = Callable[[Callable[[], Result]], Replay]


class CudaRecorder:
    """Captures calls, all into one memory: they are never replayed at the same time, and what one
    returns is copied before the next is replayed."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, call: Callable[[], T]) -> Callable[[], T]:
        """Run a call until its libraries have settled, then capture it; returns the replay."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                call()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # Other threads of the process, such as the speech LM's, may allocate meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            result = call()

        def replay() -> T:
            graph.replay()
            return result

        return replay


@dataclass(frozen=True, slots=True, eq=False)
class _Captured:
    inputs: StepBatch
    space: Workspace
    """Held because the captured call writes into it."""
    replay: Replay


class CapturedVelocity:
    """Stands in for `CachedDiT.velocity`: same arguments, same results."""

    def __init__(self, dit: CachedDiT, record: Record | None = None) -> None:
        self._dit = dit
        self._record = record or CudaRecorder()
        self._captured: OrderedDict[tuple[object, ...], _Captured] = OrderedDict()

    def __call__(self, batch: StepBatch, pool: PagePool) -> Result:
        """Copy the batch into the captured call's inputs and replay it."""
        batch = _uniform(batch)
        shape = (*batch.base.shape, *batch.x.shape, *batch.table.shape, batch.rows is None)
        captured = self._captured.pop(shape, None)
        if captured is None:
            own = _copied(batch)
            replay = self._record(lambda: self._dit.velocity(own, pool))
            captured = _Captured(own, self._dit.workspace(own), replay)
        self._captured[shape] = captured
        while len(self._captured) > MOST_SHAPES:
            self._captured.popitem(last=False)
        for target, source in zip(_tensors(captured.inputs), _tensors(batch), strict=True):
            target.copy_(source)
        # The next replay writes over these, while a solution without guidance keeps its velocity
        # until its next call.
        velocity, tails = captured.replay()
        return velocity.clone(), tails.clone()


def _uniform(batch: StepBatch) -> StepBatch:
    """Give every row its own rotation and modulation, so that a shape has one form only."""
    rows = batch.base.shape[0]
    modulation: list[Vectors] = [
        tuple(vector.expand(rows, 1, -1) if vector.dim() == 1 else vector for vector in vectors)
        for vectors in batch.modulation
    ]
    values = {field.name: getattr(batch, field.name) for field in fields(batch)}
    values["modulation"] = modulation
    values["rotation"] = batch.rotation.expand(rows, *batch.rotation.shape[1:])
    return StepBatch(**values)


def _copied(batch: StepBatch) -> StepBatch:
    values = {field.name: getattr(batch, field.name) for field in fields(batch)}
    for name, value in values.items():
        if isinstance(value, Tensor):
            values[name] = value.clone(memory_format=torch.contiguous_format)
    values["modulation"] = [
        tuple(vector.clone(memory_format=torch.contiguous_format) for vector in vectors)
        for vectors in batch.modulation
    ]
    return StepBatch(**values)


def _tensors(batch: StepBatch) -> list[Tensor]:
    single = [getattr(batch, field.name) for field in fields(batch)]
    tensors = [value for value in single if isinstance(value, Tensor)]
    return tensors + [vector for vectors in batch.modulation for vector in vectors]
