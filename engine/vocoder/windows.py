"""Streaming over a vocoder that looks both ways: overlapping windows, faded into each other.

Each window repeats enough of the past that its left side is exact. Its right side lacks what
follows, so the last frames are held back and faded, at a constant sum of one, into the same frames
of the next window. Both sing the same phase: F0 that is final is kept, the oscillators go on from
where they stood, and every sample has its noise once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from antiphon.engine.vocoder.harmonics import Phase
from antiphon.engine.vocoder.hift_noncausal import CentredHiFT

FADE_FRAMES = 2
"""23 to 40 ms: long enough to hide a step, short enough to leave the poorer window soon."""


@dataclass(frozen=True, slots=True)
class WindowState:
    """What the next window begins with, of fixed size however long the stream is."""

    mel: Tensor
    """(1, frames, mel): context that is done, then frames that are held back."""
    f0: Tensor
    """(1, n) Hz of the first frames of `mel`, as far as it is final."""
    noise: Tensor
    """(1, frames · samples a frame, harmonics) of N(0, 1)."""
    phase: Phase
    context: int
    """Frames of `mel` that are done."""
    held: Tensor
    """(1, samples) of the frames that are held back, unfinished; empty before the first sound."""
    generator: Tensor
    """State of the noise's random generator."""

    @property
    def nbytes(self) -> int:
        """Bytes that the state occupies."""
        tensors = (self.mel, self.f0, self.noise, self.held, self.generator)
        return sum(tensor.nbytes for tensor in tensors)


class WindowedVocoder:
    """Streams of one vocoder; holds no state of any of them."""

    def __init__(self, hift: CentredHiFT, hold_frames: int) -> None:
        """Hold back `hold_frames` of each window: latency against what the fade has to hide.

        From `hift.context_frames` and the fade on there is nothing to hide: all samples are exact.
        """
        self.hift = hift
        self.hold_frames = hold_frames
        self.context_frames = hift.context_frames

    def start(self, seed: int) -> WindowState:
        """Begin a stream whose noise and start phases come from `seed`."""
        config = self.hift.config
        harmonics = config.nb_harmonics + 1
        generator = torch.Generator().manual_seed(seed)
        offsets = torch.zeros(1, harmonics)
        if not self.hift.m_source.interpolated:
            offsets[:, 1:] = torch.rand(harmonics - 1, generator=generator)
        weight = self.hift.f0_predictor.classifier.weight
        return WindowState(
            mel=weight.new_zeros(1, 0, config.in_channels),
            f0=weight.new_zeros(1, 0),
            noise=weight.new_zeros(1, 0, harmonics),
            phase=Phase.initial(offsets.to(weight.device)),
            context=0,
            held=weight.new_zeros(1, 0),
            generator=generator.get_state(),
        )

    @torch.inference_mode()
    def advance(
        self, mel: Tensor, state: WindowState, *, final: bool
    ) -> tuple[Tensor, WindowState]:
        """Synthesise (1, frames, mel) that follow; return what became final, (1, samples).

        Over a stream that is all samples of all frames, however they were cut.
        """
        length = self.hift.config.samples_per_frame
        noise, generator = self._draw(mel.shape[1] * length, state)
        window = torch.cat([state.mel, mel], dim=1)
        if window.shape[1] == 0:
            return state.held, state
        noise = torch.cat([state.noise, noise], dim=1)
        known = state.f0.shape[1]
        f0 = torch.cat([state.f0, self.hift.f0_predictor(window)[:, known:]], dim=1)
        samples = self.hift.decode(window, self.hift.m_source(f0, state.phase, noise))
        fresh = _fade(state.held, samples[:, state.context * length :], FADE_FRAMES * length)
        if final:
            return fresh, state
        hold = min(self.hold_frames, window.shape[1] - state.context)
        done = fresh.shape[1] - hold * length
        dropped = max(0, window.shape[1] - hold - self.context_frames)
        settled = max(dropped, window.shape[1] - self.hift.f0_predictor.look)
        return fresh[:, :done], WindowState(
            mel=window[:, dropped:].clone(),
            f0=f0[:, dropped:settled].clone(),
            noise=noise[:, dropped * length :].clone(),
            phase=self.hift.m_source.advance(f0[:, :dropped], state.phase),
            context=window.shape[1] - hold - dropped,
            held=fresh[:, done:].clone() if done else state.held,
            generator=generator,
        )

    def _draw(self, samples: int, state: WindowState) -> tuple[Tensor, Tensor]:
        generator = torch.Generator()
        generator.set_state(state.generator)
        drawn = torch.randn(1, samples, state.noise.shape[2], generator=generator)
        return drawn.to(state.noise), generator.get_state()


def _fade(held: Tensor, samples: Tensor, length: int) -> Tensor:
    """Fade from what the last window made of these samples into what this one makes of them.

    The two are nearly equal, so weights that add up to one keep the level; upstream's add up to
    1.08, a bump of 0.67 dB.
    """
    length = min(length, held.shape[1])
    rise = (torch.arange(length, device=held.device, dtype=held.dtype) + 0.5) / max(1, length)
    faded = samples[:, :length] * rise + held[:, :length] * (1 - rise)
    return torch.cat([faded, samples[:, length:]], dim=1)
