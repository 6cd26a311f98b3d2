"""Mel to samples for one turn of CosyVoice 1 and 2, with mel that may still be replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from antiphon.engine.acoustic.decoder import Portion
from antiphon.engine.acoustic.speech import to_host
from antiphon.engine.errors import SynthesisFailed
from antiphon.engine.vocoder.windows import WindowedVocoder, WindowState

NOISE_SEED = 0
"""Every turn has the same noise: a text said again sounds the same."""


@dataclass(frozen=True, slots=True, eq=False)
class WindowSpeech:
    """The vocoder's side of a stream: a value."""

    window: WindowState
    mel: Tensor
    """(frames, mel) from `window.frames` on."""

    @property
    def nbytes(self) -> int:
        """Bytes that the state occupies."""
        return self.window.nbytes + self.mel.nbytes


class WindowSpeechVocoder:
    """Implements `SpeechVocoder` over windows."""

    def __init__(self, windows: WindowedVocoder) -> None:
        self._windows = windows
        self.sample_rate = windows.hift.config.sampling_rate

    def start(self) -> WindowSpeech:
        """Return the state of a turn before its first frame."""
        window = self._windows.start(NOISE_SEED)
        return WindowSpeech(window, window.mel.new_zeros(0, window.mel.shape[2]))

    def place(self, state: WindowSpeech, first_frame: int, mel: Tensor) -> WindowSpeech:
        """Add (frames, mel) that begin at a frame of the turn; what was heard is left alone."""
        offset = first_frame - state.window.frames
        assert offset <= len(state.mel), "mel must follow what is there without a gap"
        kept = state.mel[: max(0, offset)]
        return replace(state, mel=torch.cat([kept, mel[max(0, -offset) :]]))

    def speak(
        self, asked: Sequence[tuple[WindowSpeech, bool]]
    ) -> list[Portion[WindowSpeech] | SynthesisFailed]:
        """See `SpeechVocoder`; each by itself, and all of it: where windows end is heard."""
        return [self._speak(state, final) for state, final in asked]

    def _speak(self, state: WindowSpeech, final: bool) -> Portion[WindowSpeech] | SynthesisFailed:
        samples, window = self._windows.advance(state.mel[None], state.window, final=final)
        (heard,) = to_host(samples)
        if isinstance(heard, SynthesisFailed):
            return heard
        done = window.frames - state.window.frames
        return Portion(heard, WindowSpeech(window, state.mel[done:]), done=True)
