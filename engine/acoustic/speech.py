"""Mel to samples for one turn, with mel that may still be replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from antiphon.engine.acoustic.decoder import Portion
from antiphon.engine.errors import SynthesisFailed
from antiphon.engine.vocoder.hift import HiFT
from antiphon.engine.vocoder.pieces import Pieces
from antiphon.engine.vocoder.rows import OneByOne, Row, RowAdvance, RowState
from antiphon.engine.vocoder.source import SourceNoise
from antiphon.engine.watermark.marked import FloatSamples


@dataclass(frozen=True, slots=True, eq=False)
class SpeechState:
    """The vocoder's side of a stream: a value.

    Frames before `vocoder.frames` were heard. `mel` holds those from there on: when a later hop
    solves some of them again, the new ones take their place, and the vocoder goes on from the
    state it had before them.
    """

    vocoder: RowState | None
    noise: Tensor
    mel: Tensor
    """(frames, mel)"""

    @property
    def heard_frames(self) -> int:
        """Mel frames whose samples were handed out."""
        return 0 if self.vocoder is None else self.vocoder.frames

    @property
    def nbytes(self) -> int:
        """Bytes that the state occupies."""
        own = self.noise.nbytes + self.mel.nbytes
        return own + (0 if self.vocoder is None else self.vocoder.nbytes)


@dataclass(slots=True, eq=False)
class _Asked:
    """A stream on its way through one call of `Vocoder.speak`."""

    state: SpeechState
    final: bool
    room: int
    """Frames that it may still do now."""
    pieces: list[FloatSamples] = field(default_factory=list)
    error: SynthesisFailed | None = None


class Vocoder:
    """Weights of the vocoder and its fixed noise; moves `SpeechState` values forward."""

    def __init__(
        self,
        hift: HiFT,
        noise: SourceNoise,
        advance: RowAdvance | None = None,
        pieces: Pieces | None = None,
    ) -> None:
        """`advance` makes the calls, stream by stream if not given, for the sizes of `pieces`."""
        self._hift = hift
        self._advance = advance or OneByOne(hift)
        self._pieces = pieces or Pieces()
        self._noise = noise
        self.sample_rate = hift.config.sampling_rate
        self._device = hift.m_source.l_linear.weight.device

    def start(self) -> SpeechState:
        """Return the state of a turn before its first frame."""
        bins = self._hift.config.in_channels
        return SpeechState(None, self._noise.start, torch.zeros(0, bins, device=self._device))

    def place(self, state: SpeechState, first_frame: int, mel: Tensor) -> SpeechState:
        """Add (frames, mel) that begin at a frame of the turn; what was heard is left alone."""
        offset = first_frame - state.heard_frames
        assert offset <= len(state.mel), "mel must follow what is there without a gap"
        kept = state.mel[: max(0, offset)]
        return replace(state, mel=torch.cat([kept, mel[max(0, -offset) :]]))

    def speak(
        self, asked: Sequence[tuple[SpeechState, bool]]
    ) -> list[Portion[SpeechState] | SynthesisFailed]:
        """See `SpeechVocoder`: pieces of equal length are made in one call."""
        streams = [_Asked(state, final, self._pieces.most) for state, final in asked]
        while groups := self._groups(streams):
            for (size, last, _), group in groups.items():
                self._make(group, size, last)
        return [
            stream.error or Portion(_joined(stream.pieces), stream.state, self._left(stream) <= 0)
            for stream in streams
        ]

    def _left(self, stream: _Asked) -> int:
        """Frames that can be done."""
        return len(stream.state.mel) - (0 if stream.final else self._hift.look_ahead)

    def _groups(self, streams: Sequence[_Asked]) -> dict[tuple[int, bool, bool], list[_Asked]]:
        """Streams by their next piece: its size, and whether it is the last and the first."""
        groups: dict[tuple[int, bool, bool], list[_Asked]] = {}
        for stream in streams:
            left = self._left(stream)
            size = self._pieces.next(
                left, self._hift.look_ahead, final=stream.final, room=stream.room
            )
            if size and stream.error is None:
                key = (size, stream.final and size == left, stream.state.vocoder is None)
                groups.setdefault(key, []).append(stream)
        return groups

    def _make(self, group: Sequence[_Asked], size: int, last: bool) -> None:
        """Make one piece of every stream of a group."""
        own, beyond = self._hift.noise_samples(size, final=last)
        frames = size if last else size + self._hift.look_ahead
        rows, after = [], []
        for stream in group:
            noise, then = self._noise.draw(stream.state.noise, own)
            if beyond:
                noise = torch.cat([noise, self._noise.draw(then, beyond)[0]])
            rows.append(Row(stream.state.mel[:frames], noise, stream.state.vocoder))
            after.append(then)
        samples, states = self._advance(rows, final=last)
        for stream, heard, state, noise in zip(group, to_host(samples), states, after, strict=True):
            if isinstance(heard, SynthesisFailed):
                stream.error = heard
                continue
            stream.pieces.append(heard)
            stream.state = SpeechState(state, noise, stream.state.mel[size:])
            stream.room -= size


def _joined(pieces: list[FloatSamples]) -> FloatSamples:
    if len(pieces) == 1:
        return pieces[0]
    return np.concatenate(pieces) if pieces else np.zeros(0, np.float32)


def to_host(samples: Tensor) -> list[FloatSamples | SynthesisFailed]:
    """Bring (rows, samples) to the host, row by row; an error for one that is not finite.

    From a GPU through pinned memory, which the copy engine fills while other streams compute; the
    thread that waits is the worker's, never the event loop's.
    """
    if samples.is_cuda:
        host = torch.empty(samples.shape, dtype=samples.dtype, pin_memory=True)
        host.copy_(samples, non_blocking=True)
        torch.cuda.current_stream(samples.device).synchronize()
        # Pinned memory is scarce; what goes on to the listener is ordinary.
        samples = host.clone()
    finite = torch.isfinite(samples).all(dim=1).tolist()
    return [
        row.numpy() if fine else SynthesisFailed("the vocoder produced samples that are not finite")
        for row, fine in zip(samples, finite, strict=True)
    ]
