"""HiFT vocoder of CosyVoice 1 and 2: mel to samples with context on both sides.

HiFTNet (arXiv 2309.09493). Module and parameter names are those of the official checkpoints
(`HiFTGenerator`). Streams run it over overlapping windows; see `windows.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from antiphon.engine.checkpoint.config import F0PredictorConfig, HiFTConfig
from antiphon.engine.vocoder.harmonics import HarmonicSource, Phase
from antiphon.engine.vocoder.hift import LAST_SLOPE, LOUDEST_MAGNITUDE
from antiphon.engine.vocoder.layers import Snake, fold_weight_norm, weight_normed
from antiphon.engine.vocoder.spectrum import Spectrum

F0_LAYERS = 5
VERSION_1_RATE = 22_050


class CentredF0Predictor(nn.Module):
    """Five centred convolutions and a linear layer."""

    look = F0_LAYERS
    """Frames on either side that a frame's F0 depends on."""

    def __init__(self, config: F0PredictorConfig) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = config.in_channels
        for _ in range(F0_LAYERS):
            convolution = nn.Conv1d(channels, config.cond_channels, 3, padding=1)
            layers += [weight_normed(convolution), nn.ELU()]
            channels = config.cond_channels
        self.condnet = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels, config.num_class)

    def forward(self, mel: Tensor) -> Tensor:
        """Map (batch, frames, mel) to Hz, (batch, frames)."""
        hidden = self.condnet(mel.transpose(1, 2)).transpose(1, 2)
        hertz: Tensor = self.classifier(hidden).squeeze(-1)
        return hertz.abs()


class CentredResBlock(nn.Module):
    """Pairs of dilated and plain centred convolutions, each pair with a residual."""

    def __init__(self, channels: int, kernel: int, dilations: Sequence[int]) -> None:
        super().__init__()

        def convolution(dilation: int) -> nn.Module:
            padding = (kernel - 1) * dilation // 2
            layer = nn.Conv1d(channels, channels, kernel, dilation=dilation, padding=padding)
            return cast(nn.Module, weight_normed(layer))

        self.look = sum((kernel - 1) * (dilation + 1) // 2 for dilation in dilations)
        self.convs1 = nn.ModuleList([convolution(dilation) for dilation in dilations])
        self.convs2 = nn.ModuleList([convolution(1) for _ in dilations])
        self.activations1 = nn.ModuleList([Snake(channels) for _ in dilations])
        self.activations2 = nn.ModuleList([Snake(channels) for _ in dilations])

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, channels, columns) to the same shape."""
        layers = zip(self.convs1, self.convs2, self.activations1, self.activations2, strict=True)
        for conv1, conv2, snake1, snake2 in layers:
            x = x + conv2(snake2(conv1(snake1(x))))
        return x


class CentredHiFT(nn.Module):
    """Weights of `hift.pt` (official `HiFTGenerator`), keys as published."""

    def __init__(self, config: HiFTConfig) -> None:
        super().__init__()
        self.config = config
        widths = [config.base_channels >> stage for stage in range(len(config.upsample_rates) + 1)]
        self.m_source = HarmonicSource(config, interpolated=config.sampling_rate != VERSION_1_RATE)
        self.conv_pre = weight_normed(nn.Conv1d(config.in_channels, widths[0], 7, padding=3))
        self.ups = nn.ModuleList(
            [
                _transposed(widths[stage], widths[stage + 1], kernel, rate)
                for stage, (rate, kernel) in enumerate(
                    zip(config.upsample_rates, config.upsample_kernel_sizes, strict=True)
                )
            ]
        )
        self.source_downs = nn.ModuleList(
            [
                _downsampling(config.istft_n_fft + 2, width, stride)
                for width, stride in zip(widths[1:], _strides(config.upsample_rates), strict=True)
            ]
        )
        self.source_resblocks = nn.ModuleList(
            [
                CentredResBlock(width, kernel, dilations)
                for width, kernel, dilations in zip(
                    widths[1:],
                    config.source_resblock_kernel_sizes,
                    config.source_resblock_dilation_sizes,
                    strict=True,
                )
            ]
        )
        self.resblocks = nn.ModuleList(
            [
                CentredResBlock(width, kernel, dilations)
                for width in widths[1:]
                for kernel, dilations in zip(
                    config.resblock_kernel_sizes, config.resblock_dilation_sizes, strict=True
                )
            ]
        )
        self.conv_post = weight_normed(nn.Conv1d(widths[-1], config.istft_n_fft + 2, 7, padding=3))
        self.f0_predictor = CentredF0Predictor(config.f0_predictor)
        self.spectrum = Spectrum(config.istft_n_fft, config.istft_hop_len)

    def prepare_for_serving(self) -> CentredHiFT:
        """Fold weight norms and freeze. Returns itself."""
        fold_weight_norm(self)
        return self.eval().requires_grad_(False)

    def forward(self, mel: Tensor, phase: Phase, noise: Tensor) -> Tensor:
        """Map (batch, frames, mel) to (batch, samples).

        `noise` is (batch, samples, harmonics) of N(0, 1).
        """
        excitation: Tensor = self.m_source(self.f0_predictor(mel), phase, noise)
        return self.decode(mel, excitation)

    def decode(self, mel: Tensor, excitation: Tensor) -> Tensor:
        """Filter (batch, samples) of excitation by (batch, frames, mel)."""
        half = self.config.istft_n_fft // 2
        padded = functional.pad(excitation[:, None], (half, half), mode="reflect")[:, 0]
        source = self.spectrum.frames(padded)
        hidden: Tensor = self.conv_pre(mel.transpose(1, 2))
        kernels = len(self.config.resblock_kernel_sizes)
        for stage, up in enumerate(self.ups):
            hidden = up(functional.leaky_relu(hidden, self.config.lrelu_slope))
            if stage == len(self.ups) - 1:
                # One column more than samples / 4: the transform is centred on both ends.
                hidden = torch.cat([hidden[..., 1:2], hidden], dim=-1)
            hidden = hidden + self.source_resblocks[stage](self.source_downs[stage](source))
            blocks = self.resblocks[stage * kernels : (stage + 1) * kernels]
            hidden = torch.stack([block(hidden) for block in blocks]).sum(dim=0) / kernels
        return self._synthesise(self.conv_post(functional.leaky_relu(hidden, LAST_SLOPE)))

    def _synthesise(self, hidden: Tensor) -> Tensor:
        """Magnitudes and phases, (batch, 2 · bins, columns), to samples."""
        bins = self.config.istft_n_fft // 2 + 1
        magnitude = hidden[:, :bins].exp().clamp(max=LOUDEST_MAGNITUDE)
        angle = hidden[:, bins:].sin()
        parts = torch.cat([magnitude * angle.cos(), magnitude * angle.sin()], dim=1)
        summed, _ = self.spectrum.overlap_add(parts, None)
        half = self.config.istft_n_fft // 2
        signal, windows = summed[..., half : summed.shape[-1] - half]
        samples: Tensor = signal / windows
        return samples.clamp(-self.config.audio_limit, self.config.audio_limit)

    @property
    def context_frames(self) -> int:
        """Mel frames on either side that a frame's samples depend on.

        The longest way leads through the F0 net, the phase's interpolation and the excitation.
        """
        columns = [1.0]
        for rate in self.config.upsample_rates:
            columns.append(columns[-1] * rate)
        kernels = len(self.config.resblock_kernel_sizes)
        through_mel, through_source = 3.0, self.f0_predictor.look + 1.0
        for stage, (kernel, per_frame) in enumerate(
            zip(self.config.upsample_kernel_sizes, columns[1:], strict=True)
        ):
            blocks = self.resblocks[stage * kernels : (stage + 1) * kernels]
            own = max(cast(CentredResBlock, block).look for block in blocks) / per_frame
            mixed = cast(CentredResBlock, self.source_resblocks[stage]).look / per_frame
            # A strided column of the excitation reaches over its neighbours by half a column.
            entering = self.f0_predictor.look + 1.0 + mixed + 1.0 / per_frame
            through_mel += kernel / per_frame
            through_source = max(through_source + kernel / per_frame, entering)
            through_mel, through_source = through_mel + own, through_source + own
        last = 4.0 / columns[-1]
        return int(max(through_mel, through_source) + last) + 1


def _transposed(channels: int, out: int, kernel: int, rate: int) -> nn.Module:
    layer = nn.ConvTranspose1d(channels, out, kernel, rate, padding=(kernel - rate) // 2)
    return cast(nn.Module, torch.nn.utils.parametrizations.weight_norm(layer))


def _strides(upsample_rates: tuple[int, ...]) -> list[int]:
    """Frames of the excitation's transform for a column after each upsampling."""
    strides = [1]
    for rate in reversed(upsample_rates[1:]):
        strides.append(strides[-1] * rate)
    return strides[::-1]


def _downsampling(channels: int, out: int, stride: int) -> nn.Conv1d:
    if stride == 1:
        return nn.Conv1d(channels, out, 1)
    return nn.Conv1d(channels, out, 2 * stride, stride=stride, padding=stride // 2)
