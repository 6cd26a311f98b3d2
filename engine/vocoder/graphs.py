"""The causal vocoder captured once for each shape of a hop and replayed (CUDA graphs).

A hop's vocoder launches some 300 small kernels. Hops end where chunks end, so that few shapes
recur: the first hop's, and a chunk's with and without a state before it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from antiphon.engine.flow.graphs import record_on_cuda
from antiphon.engine.vocoder.hift import HiFT, VocoderState

MOST_SHAPES = 64
"""Captured and kept; hops of other lengths, as at the end of a turn, come and go."""

Result = tuple[Tensor, VocoderState]
Record = Callable[[Callable[[], Result]], Callable[[], Result]]


@dataclass(frozen=True, slots=True, eq=False)
class _Captured:
    inputs: list[Tensor]
    replay: Callable[[], Result]


class CapturedAdvance:
    """Stands in for `HiFT.advance`: same arguments, same results."""

    def __init__(self, hift: HiFT, record: Record = record_on_cuda) -> None:
        self._hift = hift
        self._record = record
        self._captured: OrderedDict[tuple[object, ...], _Captured] = OrderedDict()

    @torch.inference_mode()
    def __call__(
        self, mel: Tensor, noise: Tensor, state: VocoderState | None, *, final: bool
    ) -> Result:
        """Copy a piece into the captured call's inputs and replay it."""
        given = [mel, noise, *([] if state is None else _tensors(state))]
        key = (final, state is None, *mel.shape, *noise.shape)
        captured = self._captured.pop(key, None)
        if captured is None:
            captured = self._capture(mel, noise, state, final=final)
        self._captured[key] = captured
        while len(self._captured) > MOST_SHAPES:
            self._captured.popitem(last=False)
        for target, source in zip(captured.inputs, given, strict=True):
            target.copy_(source)
        samples, after = captured.replay()
        # The next replay writes over what this one returned.
        frames = (0 if state is None else state.frames) + after.frames
        return samples.clone(), _copied(after, frames)

    def _capture(
        self, mel: Tensor, noise: Tensor, state: VocoderState | None, *, final: bool
    ) -> _Captured:
        own_mel, own_noise = mel.clone(), noise.clone()
        own_state = None if state is None else _copied(state, 0)
        inputs = [own_mel, own_noise, *([] if own_state is None else _tensors(own_state))]
        replay = self._record(
            lambda: self._hift.advance(own_mel, own_noise, own_state, final=final)
        )
        return _Captured(inputs, replay)


def _tensors(state: VocoderState) -> list[Tensor]:
    return [
        state.cycles,
        *state.f0_tails,
        *state.conv_tails,
        state.source,
        state.spectrum,
        state.overlap,
    ]


def _copied(state: VocoderState, frames: int) -> VocoderState:
    values = {field.name: getattr(state, field.name) for field in fields(state)}
    for name, value in values.items():
        if isinstance(value, Tensor):
            values[name] = value.clone()
        elif isinstance(value, tuple):
            values[name] = tuple(tensor.clone() for tensor in value)
    return VocoderState(**(values | {"frames": frames}))
