"""Pieces of several streams in one call of the vocoder, or one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import prod
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from antiphon.engine.vocoder.hift import HiFT, VocoderState

STATE_TENSORS = tuple(field.name for field in fields(VocoderState) if field.name != "frames")


class RowState(Protocol):
    """What lies behind a stream's last piece."""

    @property
    def frames(self) -> int:
        """Mel frames that are done."""

    @property
    def nbytes(self) -> int:
        """Bytes that the state occupies."""


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """The next piece of one stream (see `HiFT.advance`)."""

    mel: Tensor
    """(frames, mel), the look-ahead included."""
    noise: Tensor
    """(samples, harmonics)"""
    state: Any
    """What the call before returned for this stream; None at its beginning."""


class RowAdvance(Protocol):
    """Moves streams on whose pieces have the same length, and which all begin or all go on."""

    def __call__(self, rows: Sequence[Row], *, final: bool) -> tuple[Tensor, Sequence[RowState]]:
        """Return (rows, samples) and the states after them."""


class OneByOne:
    """Row by row, as on a CPU, where one session goes at a time and its rows rarely meet another's.

    Where they do, one call for all saves a quarter of a first hop's work and nothing of a chunk's.
    """

    def __init__(self, hift: HiFT) -> None:
        self._hift = hift

    def __call__(
        self, rows: Sequence[Row], *, final: bool
    ) -> tuple[Tensor, Sequence[VocoderState]]:
        """See `RowAdvance`."""
        results = [
            self._hift.advance(row.mel[None], row.noise[None], row.state, final=final)
            for row in rows
        ]
        return torch.cat([samples for samples, _ in results]), [state for _, state in results]


@dataclass(frozen=True, slots=True, eq=False)
class PackedState:
    """A `VocoderState` of one stream in two vectors: some eighty tensors, which are as many
    launches to stack and to take apart again, are two."""

    frames: int
    single: Tensor
    """(values,) float32"""
    double: Tensor
    """(values,) float64: the phase, and what the F0 net keeps."""

    @property
    def nbytes(self) -> int:
        """Bytes that the state occupies."""
        return self.single.nbytes + self.double.nbytes


@dataclass(frozen=True, slots=True)
class _Place:
    name: str
    index: int | None
    """Which of the field's tensors, where it has several."""
    shape: tuple[int, ...]
    """Of one row."""
    double: bool
    batch_dim: int


@dataclass(frozen=True, slots=True)
class StateLayout:
    """Where each tensor of a state lies in the two vectors."""

    places: tuple[_Place, ...]

    @classmethod
    def of(cls, state: VocoderState) -> Self:
        """The layout of all states of this vocoder."""
        places = []
        for name in STATE_TENSORS:
            value = getattr(state, name)
            several = isinstance(value, tuple)
            for index, tensor in enumerate(value if several else (value,)):
                batch_dim = 1 if name == "overlap" else 0
                shape = tuple(tensor.movedim(batch_dim, 0).shape[1:])
                double = tensor.dtype == torch.float64
                places.append(_Place(name, index if several else None, shape, double, batch_dim))
        return cls(tuple(places))

    def sizes(self) -> tuple[int, int]:
        """Values in the float32 and in the float64 vector."""
        single, double = (
            sum(prod(place.shape) for place in self.places if place.double is wanted)
            for wanted in (False, True)
        )
        return single, double

    def pack(self, state: VocoderState) -> tuple[Tensor, Tensor]:
        """Return (rows, values) of float32 and of float64."""
        parts: dict[bool, list[Tensor]] = {False: [], True: []}
        for place in self.places:
            value = getattr(state, place.name)
            tensor = value if place.index is None else value[place.index]
            parts[place.double].append(tensor.movedim(place.batch_dim, 0).flatten(1)
                                       if place.shape else tensor[:, None])  # fmt: skip
        return torch.cat(parts[False], dim=1), torch.cat(parts[True], dim=1)

    def unpack(self, single: Tensor, double: Tensor) -> VocoderState:
        """Return views of packed states; `frames` is 0."""
        rows = len(single)
        at = {False: 0, True: 0}
        values: dict[str, Any] = {"frames": 0}
        for place in self.places:
            start = at[place.double]
            at[place.double] = stop = start + prod(place.shape)
            packed = double if place.double else single
            tensor = packed[:, start:stop].view(rows, *place.shape).movedim(0, place.batch_dim)
            if place.index is None:
                values[place.name] = tensor
            else:
                values[place.name] = (*values.get(place.name, ()), tensor)
        return VocoderState(**values)
