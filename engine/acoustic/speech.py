"""Mel to samples for one turn, with mel that may still be replaced."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from antiphon.engine.errors import SynthesisFailed
from antiphon.engine.vocoder.graphs import CapturedAdvance
from antiphon.engine.vocoder.hift import HiFT, VocoderState
from antiphon.engine.vocoder.source import SourceNoise
from antiphon.engine.watermark.marked import FloatSamples


@dataclass(frozen=True, slots=True, eq=False)
class SpeechState:
    """The vocoder's side of a stream: a value.

    Frames before `vocoder.frames` were heard. `mel` holds those from there on: when a later hop
    solves some of them again, the new ones take their place, and the vocoder goes on from the
    state it had before them.
    """

    vocoder: VocoderState | None
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


class Vocoder:
    """Weights of the vocoder and its fixed noise; moves `SpeechState` values forward."""

    def __init__(
        self, hift: HiFT, noise: SourceNoise, advance: CapturedAdvance | None = None
    ) -> None:
        """`advance` stands in for the module's own where calls are captured."""
        self._hift = hift
        self._advance = advance or hift.advance
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

    def speak(self, state: SpeechState, *, final: bool) -> tuple[FloatSamples, SpeechState]:
        """Return all samples that the mel makes final, float32 (samples,), and what is left.

        Raises:
            SynthesisFailed: non-finite samples.
        """
        look_ahead = 0 if final else self._hift.look_ahead
        frames = len(state.mel) - look_ahead
        if frames <= 0:
            return torch.zeros(0).numpy(), state
        own, beyond = self._hift.noise_samples(frames, final=final)
        noise, after = self._noise.draw(state.noise, own)
        if beyond:
            noise = torch.cat([noise, self._noise.draw(after, beyond)[0]])
        samples, vocoder = self._advance(
            state.mel[None], noise[None].to(self._device), state.vocoder, final=final
        )
        return heard(samples[0]), SpeechState(vocoder, after, state.mel[frames:])


def heard(samples: Tensor) -> FloatSamples:
    """Bring (samples,) to the host.

    From a GPU through pinned memory, which the copy engine fills while other streams compute; the
    thread that waits is the worker's, never the event loop's.

    Raises:
        SynthesisFailed: non-finite samples.
    """
    if samples.is_cuda:
        host = torch.empty(samples.shape, dtype=samples.dtype, pin_memory=True)
        host.copy_(samples, non_blocking=True)
        torch.cuda.current_stream(samples.device).synchronize()
        samples = host
    if not bool(torch.isfinite(samples).all()):
        raise SynthesisFailed("the vocoder produced samples that are not finite")
    return samples.numpy()
