"""Faster and slower speech: the mel is stretched in time between flow and vocoder.

Frame j of the stretched mel is read between two frames of the flow's, at (j + 1/2)·speed − 1/2, by
linear interpolation: what the published implementation does with whole utterances, here while the
mel grows and while its end may still be replaced. Frames keep their spectra, and the vocoder finds
F0 from them, so that the pitch stays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from antiphon.engine.acoustic.decoder import Portion, SpeechVocoder
from antiphon.engine.errors import SynthesisFailed

KEPT_FRAMES = 256
"""Frames that a later hop may still replace, and more: a hop solves at most its last chunk anew."""


@dataclass(frozen=True, slots=True, eq=False)
class TempoState:
    """A vocoder's state behind a stretched mel: a value."""

    inner: Any
    speed: float
    mel: Tensor | None = None
    """(frames, mel) of the flow's, from `first` on; None while there are none, and at speed 1."""
    first: int = 0
    stretched: int = 0
    """Frames that the vocoder was given."""

    @property
    def nbytes(self) -> int:
        """Bytes that the state occupies."""
        own = 0 if self.mel is None else self.mel.nbytes
        return int(self.inner.nbytes) + own


class TempoVocoder:
    """Puts a tempo before a vocoder; at speed 1 nothing is changed."""

    def __init__(self, inner: SpeechVocoder[Any]) -> None:
        self._inner = inner

    @property
    def sample_rate(self) -> int:
        """Samples a second."""
        return self._inner.sample_rate

    def start(self, speed: float = 1.0) -> TempoState:
        """Return the state of a turn before its first frame."""
        return TempoState(self._inner.start(), speed)

    def place(self, state: TempoState, first_frame: int, mel: Tensor) -> TempoState:
        """Add (frames, mel) that begin at a frame of the turn; what was heard is left alone."""
        if state.speed == 1.0:
            return replace(state, inner=self._inner.place(state.inner, first_frame, mel))
        if state.mel is not None:
            assert state.first <= first_frame <= state.first + len(state.mel), "a gap in the mel"
            mel = torch.cat([state.mel[: first_frame - state.first], mel])
        # The first frame that looks at anything new, and the last with a neighbour on its right.
        start = max(0, math.ceil((first_frame - 0.5) / state.speed - 0.5))
        state = replace(state, mel=mel)
        stop = math.ceil((state.first + len(mel) - 0.5) / state.speed - 0.5)
        return _forgetful(self._give(state, min(start, state.stretched), stop))

    def speak(
        self, asked: Sequence[tuple[TempoState, bool]]
    ) -> list[Portion[TempoState] | SynthesisFailed]:
        """See `SpeechVocoder`."""
        states = [self._ended(state) if final else state for state, final in asked]
        finals = [final for _, final in asked]
        portions = self._inner.speak(
            [(state.inner, final) for state, final in zip(states, finals, strict=True)]
        )
        return [
            portion
            if isinstance(portion, SynthesisFailed)
            else Portion(portion.samples, replace(state, inner=portion.state), portion.done)
            for state, portion in zip(states, portions, strict=True)
        ]

    def _ended(self, state: TempoState) -> TempoState:
        """Hand over the stretched mel's last frames, for which nothing follows on the right."""
        if state.mel is None:
            return state
        total = int((state.first + len(state.mel)) / state.speed)
        # Even the shortest speech has a frame.
        return self._give(state, state.stretched, max(total, 1))

    def _give(self, state: TempoState, start: int, stop: int) -> TempoState:
        """Hand the stretched frames from `start` to `stop` to the vocoder."""
        if stop <= start:
            return state
        assert state.mel is not None
        places = (torch.arange(start, stop, dtype=torch.float64) + 0.5) * state.speed - 0.5
        last = state.first + len(state.mel) - 1
        places = places.clamp(0, last)
        left = places.floor().long()
        share = (places - left).to(state.mel.dtype)[:, None].to(state.mel.device)
        left = (left - state.first).clamp(min=0).to(state.mel.device)
        right = (left + 1).clamp(max=len(state.mel) - 1)
        mel = torch.lerp(state.mel[left], state.mel[right], share)
        inner = self._inner.place(state.inner, start, mel)
        return replace(state, inner=inner, stretched=max(stop, state.stretched))


def _forgetful(state: TempoState) -> TempoState:
    """Drop frames that nothing looks at any more."""
    assert state.mel is not None
    extra = len(state.mel) - KEPT_FRAMES
    if extra <= KEPT_FRAMES:
        return state
    return replace(state, mel=state.mel[extra:].clone(), first=state.first + extra)
