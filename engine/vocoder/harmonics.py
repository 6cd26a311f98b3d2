"""The excitations of CosyVoice 1 and 2: harmonics of F0 and Gaussian noise.

Neural source-filter (arXiv 1904.12088). Both integrate F0 to a phase; version 1 sample by sample
from F0 held over a frame, version 2 from one frame's middle to the next. The phase is kept in turns
and float64, so that it neither drifts nor jumps where one window of a stream follows another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from antiphon.engine.checkpoint.config import HiFTConfig


@dataclass(frozen=True, slots=True)
class Phase:
    """Where the oscillators stand before a window."""

    cycles: Tensor
    """(batch,) float64: turns of the fundamental, modulo one."""
    offsets: Tensor
    """(batch, harmonics) float64: turns by which each harmonic was ahead at the beginning."""
    starts: bool
    """Whether the window is the beginning of the speech."""

    @classmethod
    def initial(cls, offsets: Tensor) -> Phase:
        """Stand at the beginning, with a start phase for each harmonic, (batch, harmonics)."""
        cycles = torch.zeros(offsets.shape[0], dtype=torch.float64, device=offsets.device)
        return cls(cycles, offsets.double(), True)


class HarmonicSource(nn.Module):
    """Mixes the harmonics into one excitation signal (`m_source` of the checkpoint)."""

    def __init__(self, config: HiFTConfig, *, interpolated: bool) -> None:
        """`interpolated` is version 2's phase, which runs from frame middle to frame middle."""
        super().__init__()
        self.config = config
        self.interpolated = interpolated
        self.l_linear = nn.Linear(config.nb_harmonics + 1, 1)

    def forward(self, f0: Tensor, phase: Phase, noise: Tensor) -> Tensor:
        """Return the excitation, (batch, samples).

        `f0` is (batch, frames) in Hz, `noise` (batch, samples, harmonics) of N(0, 1).
        """
        merged: Tensor = torch.tanh(self.l_linear(self.harmonics(f0, phase, noise)))
        return merged.squeeze(-1)

    def harmonics(self, f0: Tensor, phase: Phase, noise: Tensor) -> Tensor:
        """Sines and noise before they are mixed, (batch, samples, harmonics)."""
        config = self.config
        turns = self._interpolated(f0, phase) if self.interpolated else self._held(f0, phase)
        sines = ((turns % 1.0) * (2 * math.pi)).sin().to(noise.dtype) * config.nsf_alpha
        voiced = (f0 > config.nsf_voiced_threshold).to(noise.dtype)
        voiced = voiced.repeat_interleave(config.samples_per_frame, dim=1)[..., None]
        level = voiced * config.nsf_sigma + (1 - voiced) * (config.nsf_alpha / 3)
        return torch.addcmul(sines * voiced, level, noise)

    def advance(self, f0: Tensor, phase: Phase) -> Phase:
        """Return the phase after (batch, frames) of F0."""
        if f0.shape[1] == 0:
            return phase
        turns = self._per_frame(f0)[..., 0].sum(dim=1)
        return Phase((phase.cycles + turns) % 1.0, phase.offsets, False)

    def _per_frame(self, f0: Tensor) -> Tensor:
        """Turns of each harmonic in each frame, (batch, frames, harmonics), float64."""
        config = self.config
        orders = torch.arange(1, config.nb_harmonics + 2, device=f0.device, dtype=torch.float64)
        # A harmonic beyond the sampling rate turns by whole samples less, as it would sound.
        step = (f0.double()[..., None] * orders / config.sampling_rate) % 1.0
        return step * config.samples_per_frame

    def _frame_ends(self, turns: Tensor, phase: Phase) -> Tensor:
        """Turns at the end of each frame, (batch, frames, harmonics)."""
        orders = torch.arange(1, turns.shape[2] + 1, device=turns.device, dtype=torch.float64)
        before = phase.cycles[:, None] * orders + phase.offsets
        return before[:, None] + turns.cumsum(dim=1)

    def _held(self, f0: Tensor, phase: Phase) -> Tensor:
        turns = self._per_frame(f0)
        length = self.config.samples_per_frame
        within = torch.arange(1, length + 1, device=f0.device, dtype=torch.float64) / length
        starts = self._frame_ends(turns, phase) - turns
        return (starts[:, :, None] + turns[:, :, None] * within[:, None]).flatten(1, 2)

    def _interpolated(self, f0: Tensor, phase: Phase) -> Tensor:
        """Lines between the frames' middles, where each has turned by all its turns.

        Before the first middle of the speech and after the last of the window it stands still.
        """
        turns = self._per_frame(f0)
        middles = self._frame_ends(turns, phase)
        following = torch.cat([turns[:, 1:], torch.zeros_like(turns[:, :1])], dim=1)
        if phase.starts:
            turns = torch.cat([torch.zeros_like(turns[:, :1]), turns[:, 1:]], dim=1)
        length = self.config.samples_per_frame
        places = (torch.arange(length, device=f0.device, dtype=torch.float64) + 0.5) / length - 0.5
        slopes = torch.where((places < 0)[:, None], turns[:, :, None], following[:, :, None])
        return (middles[:, :, None] + places[:, None] * slopes).flatten(1, 2)
