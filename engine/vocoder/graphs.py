"""The causal vocoder over rows of many streams, captured for each shape (CUDA graphs).

A hop's vocoder launches some 300 small kernels, for one stream as for thirty. `Pieces` cuts hops so
that few lengths recur; rows are rounded up to a power of two.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from antiphon.engine.flow.graphs import CudaRecorder
from antiphon.engine.vocoder.hift import HiFT
from antiphon.engine.vocoder.rows import PackedState, Row, StateLayout

MOST_SHAPES = 96
"""Captured and kept; the least recently used go. They share one memory for what they compute."""
MOST_ROWS = 32
"""Of one call; more streams than that are several calls. It bounds the memory of the activations:
at full size a row of 50 frames needs about 20 MB."""

Result = tuple[Tensor, Tensor, Tensor]
"""(rows, samples), and the states after them."""
Record = Callable[[Callable[[], Result]], Callable[[], Result]]


def round_rows(count: int) -> int:
    """Rows of a call that has room for so many streams: a power of two."""
    return 1 << max(0, count - 1).bit_length()


def directly(call: Callable[[], Result]) -> Callable[[], Result]:
    """Record nothing: every replay is the call itself."""
    return call


@dataclass(frozen=True, slots=True, eq=False)
class _Captured:
    inputs: list[Tensor]
    """Mel, noise and, unless the streams begin, both vectors of their states."""
    replay: Callable[[], Result]


class BatchedRows:
    """`RowAdvance` whose calls are captured, or made directly, with all rows in one batch."""

    def __init__(self, hift: HiFT, record: Record | None = None) -> None:
        self._hift = hift
        self._record = record or CudaRecorder()
        self._captured: OrderedDict[tuple[object, ...], _Captured] = OrderedDict()
        self._layout: StateLayout | None = None

    @torch.inference_mode()
    def __call__(self, rows: Sequence[Row], *, final: bool) -> tuple[Tensor, Sequence[PackedState]]:
        """See `RowAdvance`."""
        parts = [
            self._call(rows[start : start + MOST_ROWS], final)
            for start in range(0, len(rows), MOST_ROWS)
        ]
        return (
            torch.cat([samples for samples, _ in parts]),
            [state for _, states in parts for state in states],
        )

    def _call(self, rows: Sequence[Row], final: bool) -> tuple[Tensor, list[PackedState]]:
        given = [_moved(torch.stack([row.noise for row in rows]), rows[0].mel.device)]
        given.insert(0, torch.stack([row.mel for row in rows]))
        if rows[0].state is not None:
            given.append(torch.stack([row.state.single for row in rows]))
            given.append(torch.stack([row.state.double for row in rows]))
        captured = self._captured_for(given, final)
        for target, source in zip(captured.inputs, given, strict=True):
            target[: len(rows)].copy_(source)
        samples, single, double = captured.replay()
        look_ahead = 0 if final else self._hift.look_ahead
        done = rows[0].mel.shape[0] - look_ahead
        # Copies: the next replay, of this shape or of another, writes over what this one returned;
        # and each by itself, so that a stream that waits holds on to no other's state.
        states = [
            PackedState(
                (0 if row.state is None else row.state.frames) + done,
                single[number].clone(),
                double[number].clone(),
            )
            for number, row in enumerate(rows)
        ]
        return samples[: len(rows)].clone(), states

    def _captured_for(self, given: list[Tensor], final: bool) -> _Captured:
        """Return what was captured for a shape, capturing it where it is new."""
        count = round_rows(len(given[0]))
        key = (final, len(given), count, given[0].shape[1], given[1].shape[1])
        captured = self._captured.pop(key, None)
        if captured is None:
            inputs = [tensor.new_zeros(count, *tensor.shape[1:]) for tensor in given]
            captured = _Captured(inputs, self._record(self._on(inputs, final)))
        self._captured[key] = captured
        while len(self._captured) > MOST_SHAPES:
            self._captured.popitem(last=False)
        return captured

    def _on(self, inputs: list[Tensor], final: bool) -> Callable[[], Result]:
        """The call over inputs that stay where they are."""

        def call() -> Result:
            mel, noise, *packed = inputs
            before = None
            if packed:
                assert self._layout is not None, "streams begin before they go on"
                before = self._layout.unpack(packed[0], packed[1])
            samples, after = self._hift.advance(mel, noise, before, final=final)
            if self._layout is None:
                self._layout = StateLayout.of(after)
            return (samples, *self._layout.pack(after))

        return call


def _moved(noise: Tensor, device: torch.device) -> Tensor:
    """Bring drawn noise to the device; to a GPU through pinned memory, without waiting."""
    if device.type != "cuda":
        return noise.to(device)
    return noise.pin_memory().to(device, non_blocking=True)
