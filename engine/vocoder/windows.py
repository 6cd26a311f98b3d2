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


@dataclass(frozen=True, slots=True, eq=False)
class WindowState:
    """What lies behind frame `frames` of a stream, of fixed size however long the stream is."""

    frames: int
    """Mel frames that are done; the next window brings those from here on."""
    mel: Tensor
    """(1, context, mel) the last frames that are done."""
    f0: Tensor
    """(1, context) Hz with which they were heard."""
    noise: Tensor
    """(1, samples, harmonics) of N(0, 1) for the context and for what was held back."""
    phase: Phase
    """Before the context."""
    held: Tensor
    """(1, samples) that the last window made of the frames it held back; empty at first."""
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
        assert hold_frames >= FADE_FRAMES
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
            frames=0,
            mel=weight.new_zeros(1, 0, config.in_channels),
            f0=weight.new_zeros(1, 0),
            noise=weight.new_zeros(1, 0, harmonics),
            phase=Phase.initial(offsets.to(weight.device)),
            held=weight.new_zeros(1, 0),
            generator=generator.get_state(),
        )

    @torch.inference_mode()
    def advance(
        self, mel: Tensor, state: WindowState, *, final: bool
    ) -> tuple[Tensor, WindowState]:
        """Synthesise (1, frames, mel) from the state's frame on; return (1, samples) now final.

        Unless `final`, the last `hold_frames` are held back: they are not done and must come again,
        the same or replaced by better ones, with the next window.
        """
        fresh = mel.shape[1]
        done = fresh if final else max(0, fresh - self.hold_frames)
        if done == 0:
            return mel.new_zeros(1, 0), state
        length = self.hift.config.samples_per_frame
        context = state.mel.shape[1]
        window = torch.cat([state.mel, mel], dim=1)
        noise, generator = self._draw(window.shape[1] * length, state)
        f0 = torch.cat([state.f0, self.hift.f0_predictor(window)[:, context:]], dim=1)
        excitation = self.hift.m_source(f0, state.phase, noise[:, : window.shape[1] * length])
        samples = self.hift.decode(window, excitation)[:, context * length :]
        samples = _fade(state.held, samples, FADE_FRAMES * length)
        end = context + done
        dropped = max(0, end - self.context_frames)
        return samples[:, : done * length], WindowState(
            frames=state.frames + done,
            mel=window[:, dropped:end].clone(),
            f0=f0[:, dropped:end].clone(),
            noise=noise[:, dropped * length :].clone(),
            phase=self.hift.m_source.advance(f0[:, :dropped], state.phase),
            held=samples[:, done * length :].clone(),
            generator=generator,
        )

    def _draw(self, samples: int, state: WindowState) -> tuple[Tensor, Tensor]:
        """Return at least `samples` of noise, those of the state first."""
        generator = torch.Generator()
        generator.set_state(state.generator)
        missing = max(0, samples - state.noise.shape[1])
        drawn = torch.randn(1, missing, state.noise.shape[2], generator=generator)
        return torch.cat([state.noise, drawn.to(state.noise)], dim=1), generator.get_state()


def _fade(held: Tensor, samples: Tensor, length: int) -> Tensor:
    """Fade from what the last window made of these samples into what this one makes of them.

    The two are nearly equal, so weights that add up to one keep the level; upstream's add up to
    1.08, a bump of 0.67 dB.
    """
    length = min(length, held.shape[1])
    rise = (torch.arange(length, device=held.device, dtype=held.dtype) + 0.5) / max(1, length)
    faded = samples[:, :length] * rise + held[:, :length] * (1 - rise)
    return torch.cat([faded, samples[:, length:]], dim=1)
