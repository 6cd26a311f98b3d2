"""Shows the vocoder's early layers which phase the fundamental has at every moment.

HiFT's causal source says the phase once in a mel frame, 20 ms, and repeats it; what lies between
must be found by the layers that upsample. From spectra alone they do not find it: 5000 steps left
the complex error where silence has it. So linear heads on the columns after the first two
upsamplings (2.5 and 0.5 ms) must tell sine and cosine of the low harmonics, which is learned within
some hundred steps. The heads are dropped afterwards; what is served is the same network.
"""

import math
from typing import Final, cast

import torch
from torch import Tensor, nn

from antiphon.engine.checkpoint.config import HiFTConfig
from antiphon.engine.vocoder.hift import HiFT
from antiphon.engine.vocoder.layers import Tails

FRAME_SECONDS: Final = 0.02
_ORDERS: Final = (2, 4)
"""Harmonics whose phase is asked for after each upsampling: what its rate can still carry."""
_UNSEEN_FRAMES: Final = 3
"""Frames at the start of a crop whose past is missing."""


class GuidedHiFT(HiFT):
    """HiFT that remembers the columns after its upsamplings."""

    def __init__(self, config: HiFTConfig) -> None:
        super().__init__(config)
        self.columns: list[Tensor] = []

    def _stage(
        self, stage: int, hidden: Tensor, source: Tensor, tails: Tails, *, starts: bool
    ) -> Tensor:
        if stage == 0:
            self.columns = []
        self.columns.append(super()._stage(stage, hidden, source, tails, starts=starts))
        return self.columns[-1]

    def early_columns(self, mel: Tensor, excitation: Tensor) -> list[Tensor]:
        """The columns of the guided stages, as `decode` makes them, and nothing beyond."""
        half = self.config.istft_n_fft // 2
        padded = nn.functional.pad(excitation[:, None], (half, half), mode="reflect")[:, 0]
        spectrum = self.spectrum.frames(padded)
        joined = nn.functional.pad(spectrum, (self.source_strides[0] - 1, 0))
        hidden: Tensor = self.conv_pre(
            nn.functional.pad(mel.transpose(1, 2), (0, self.config.conv_pre_look_right))
        )
        tails = Tails(None)
        for stage in range(len(_ORDERS)):
            hidden = self._stage(stage, hidden, joined, tails, starts=True)
        return self.columns


class PhaseGuide(nn.Module):
    """Linear heads and their loss."""

    def __init__(self, config: HiFTConfig) -> None:
        super().__init__()
        self.rates: list[int] = []
        heads = []
        for stage, orders in enumerate(_ORDERS):
            self.rates.append(math.prod(config.upsample_rates[: stage + 1]))
            heads.append(nn.Conv1d(config.base_channels >> (stage + 1), 2 * orders, 1))
        self.heads = nn.ModuleList(heads)

    def forward(self, columns: list[Tensor], f0: Tensor, cycles: Tensor) -> Tensor:
        """Mean squared error over voiced columns, summed over the heads; 0.5 a head is a guess.

        `f0` is (batch, frames) in Hz, `cycles` (batch,) turns of the fundamental before them.
        """
        turns = f0.double() * FRAME_SECONDS
        before = cycles[:, None] + turns.cumsum(1) - turns
        voiced = f0 > 0
        voiced[:, :_UNSEEN_FRAMES] = False
        total = f0.new_zeros(())
        for head, rate, found in zip(self.heads, self.rates, columns, strict=False):
            place = (torch.arange(rate, dtype=torch.float64, device=f0.device) + 0.5) / rate
            phase = (before[..., None] + turns[..., None] * place).flatten(1)
            orders = cast(nn.Conv1d, head).out_channels // 2
            order = torch.arange(1, orders + 1, dtype=torch.float64, device=f0.device)
            angle = (phase[:, None] * order[None, :, None] % 1.0) * (2 * math.pi)
            wanted = torch.cat([angle.sin(), angle.cos()], dim=1).to(found.dtype)
            where = voiced.repeat_interleave(rate, dim=1)[:, None]
            error = ((head(found) - wanted).square() * where).sum()
            total = total + error / (where.sum().clamp(min=1) * 2 * orders)
        return total
