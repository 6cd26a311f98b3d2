"""Causal HiFT vocoder of CosyVoice 3: mel to 24 kHz samples, whole or streamed.

HiFTNet (arXiv 2309.09493) with causal convolutions. Whole and streamed synthesis are one code path:
the whole is a single piece. What a piece leaves for the next is a `VocoderState`; the module holds
weights only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from antiphon.engine.checkpoint.config import HiFTConfig
from antiphon.engine.vocoder.f0 import F0Predictor
from antiphon.engine.vocoder.layers import (
    CausalConv1d,
    ResBlock,
    Tails,
    UpsampleConv1d,
    fold_weight_norm,
    weight_normed,
)
from antiphon.engine.vocoder.source import Source
from antiphon.engine.vocoder.spectrum import Spectrum

LOUDEST_MAGNITUDE = 1e2
LAST_SLOPE = 0.01
"""Leak of the last activation: upstream leaves it at torch's default."""


@dataclass(frozen=True, slots=True)
class VocoderState:
    """What lies behind frame `frames` of a stream, of fixed size however long the stream is."""

    frames: int
    """Mel frames that are done; the next piece starts here."""
    cycles: Tensor
    """(batch,) float64: phase of the fundamental in turns."""
    f0_tails: tuple[Tensor, ...]
    conv_tails: tuple[Tensor, ...]
    source: Tensor
    """(batch, 4) last samples of the excitation."""
    spectrum: Tensor
    """(batch, 18, 15) last frames of the excitation's transform."""
    overlap: Tensor
    """(2, batch, 12) unfinished samples and their window sums."""

    @property
    def nbytes(self) -> int:
        """Bytes that the state occupies."""
        tensors = (
            self.cycles,
            *self.f0_tails,
            *self.conv_tails,
            self.source,
            self.spectrum,
            self.overlap,
        )
        return sum(tensor.nbytes for tensor in tensors)


class HiFT(nn.Module):
    """Weights of `hift.pt` (official `CausalHiFTGenerator`), keys as published.

    A new module has split weight norms, for training and for `load_state_dict(strict=True)`;
    `prepare_for_serving` folds them and moves the F0 net to float64, where upstream runs it.
    """

    def __init__(self, config: HiFTConfig) -> None:
        super().__init__()
        self.config = config
        self.m_source = Source(config)
        self.conv_pre = weight_normed(
            nn.Conv1d(config.in_channels, config.base_channels, config.conv_pre_look_right + 1)
        )
        widths = [config.base_channels >> stage for stage in range(len(config.upsample_rates) + 1)]
        self.ups = nn.ModuleList(
            [
                weight_normed(UpsampleConv1d(widths[stage], widths[stage + 1], kernel, rate))
                for stage, (rate, kernel) in enumerate(
                    zip(config.upsample_rates, config.upsample_kernel_sizes, strict=True)
                )
            ]
        )
        self.source_strides = _source_strides(config.upsample_rates)
        self.source_downs = nn.ModuleList(
            [
                nn.Conv1d(config.istft_n_fft + 2, width, 1 if s == 1 else 2 * s, stride=s)
                for s, width in zip(self.source_strides, widths[1:], strict=True)
            ]
        )
        self.source_resblocks = nn.ModuleList(
            [
                ResBlock(width, kernel, dilations)
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
                ResBlock(width, kernel, dilations)
                for width in widths[1:]
                for kernel, dilations in zip(
                    config.resblock_kernel_sizes, config.resblock_dilation_sizes, strict=True
                )
            ]
        )
        self.conv_post = weight_normed(CausalConv1d(widths[-1], config.istft_n_fft + 2, 7))
        self.f0_predictor = F0Predictor(config.f0_predictor)
        self.spectrum = Spectrum(config.istft_n_fft, config.istft_hop_len)

    @property
    def look_ahead(self) -> int:
        """Mel frames after a frame that its samples depend on."""
        return self.config.conv_pre_look_right + self.f0_predictor.look_right

    def prepare_for_serving(self) -> HiFT:
        """Fold weight norms, freeze, and put the F0 net into float64. Returns itself."""
        fold_weight_norm(self)
        self.f0_predictor.double()
        return self.eval().requires_grad_(False)

    def forward(
        self, mel: Tensor, noise: Tensor, f0: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Synthesise whole mels; differentiable.

        `mel` is (batch, frames, mel), `noise` (batch, samples, harmonics) and `f0`, predicted if
        not given, (batch, frames) in Hz. Returns (batch, samples) and the F0 used. Rows are padded
        by the caller: every layer is causal but for 7 frames of look-ahead.
        """
        if f0 is None:
            dtype = self.f0_predictor.classifier.weight.dtype
            f0 = self.f0_predictor(mel.to(dtype)).to(mel.dtype)
        cycles = torch.zeros(mel.shape[0], dtype=torch.float64, device=mel.device)
        excitation, _ = self.m_source(f0, cycles, noise)
        return self.decode(mel, excitation), f0

    def decode(self, mel: Tensor, excitation: Tensor) -> Tensor:
        """Filter (batch, samples) of excitation by (batch, frames, mel), both whole."""
        spectrum = self.spectrum.frames(_reflect_end(_reflect_start(excitation)))
        samples, _, _ = self._filter(mel, spectrum, None, final=True)
        return samples

    @torch.inference_mode()
    def advance(
        self, mel: Tensor, noise: Tensor, state: VocoderState | None, *, final: bool
    ) -> tuple[Tensor, VocoderState]:
        """Synthesise the next piece of a stream.

        `mel`, (batch, frames, mel), starts at the state's frame (`None`: at the beginning).
        Unless `final`, its last 7 frames are look-ahead: they are not done and must come again,
        the same or replaced by better ones, with the next piece. `noise` is (batch, samples,
        harmonics) for the frames that get done and, unless `final`, 8 samples beyond.

        Returns (batch, samples): 480 for each frame done, less 4 at the first piece, which come
        with the last.
        """
        done = mel.shape[1] if final else mel.shape[1] - self.look_ahead
        assert done > 0, "a piece needs a frame besides the look-ahead"
        excitation, cycles, f0_tails = self._excite(mel, noise, state, done, final)
        length = done * self.config.samples_per_frame
        before = (
            _reflect_start(excitation)
            if state is None
            else torch.cat([state.source, excitation], dim=1)
        )
        frames = self.spectrum.frames(_reflect_end(before) if final else before)
        samples, spectrum, (conv_tails, overlap) = self._filter(mel, frames, state, final=final)
        keep = self.config.istft_hop_len
        return samples, VocoderState(
            frames=(0 if state is None else state.frames) + done,
            cycles=cycles,
            f0_tails=f0_tails,
            conv_tails=conv_tails,
            source=excitation[:, length - keep : length],
            spectrum=spectrum,
            overlap=overlap,
        )

    def noise_samples(self, frames: int, *, final: bool) -> tuple[int, int]:
        """Samples of noise that `advance` takes for `frames` done: theirs, and those beyond."""
        beyond = 0 if final else self.config.istft_n_fft // 2
        return frames * self.config.samples_per_frame, beyond

    def _excite(
        self, mel: Tensor, noise: Tensor, state: VocoderState | None, done: int, final: bool
    ) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
        """The excitation of the frames done (and 8 samples beyond), phase and tails after them."""
        look_right = self.f0_predictor.look_right
        if final:
            seen = functional.pad(mel, (0, 0, 0, look_right))
        else:
            seen = mel[:, : done + 1 + look_right]
        tails = Tails(None if state is None else state.f0_tails)
        dtype = self.f0_predictor.classifier.weight.dtype
        f0 = self.f0_predictor.advance(seen.to(dtype), tails, consumed=done).to(mel.dtype)
        if state is None:
            cycles = torch.zeros(mel.shape[0], dtype=torch.float64, device=mel.device)
        else:
            cycles = state.cycles
        excitation, phase = self.m_source(f0, cycles, noise)
        return excitation, phase[:, done - 1].clone(), tuple(t.clone() for t in tails.collected)

    def _filter(
        self, mel: Tensor, spectrum: Tensor, state: VocoderState | None, *, final: bool
    ) -> tuple[Tensor, Tensor, tuple[tuple[Tensor, ...], Tensor]]:
        """Run the convolutions over new mel and new frames of the excitation's transform."""
        widest = self.source_strides[0]
        if state is None:
            joined = functional.pad(spectrum, (widest - 1, 0))
        else:
            joined = torch.cat([state.spectrum, spectrum], dim=-1)
        tails = Tails(None if state is None else state.conv_tails)
        mel = mel.transpose(1, 2)
        if final:
            mel = functional.pad(mel, (0, self.config.conv_pre_look_right))
        else:
            mel = mel[..., : mel.shape[-1] - self.f0_predictor.look_right]
        hidden: Tensor = self.conv_pre(mel)
        for stage in range(len(self.ups)):
            hidden = self._stage(stage, hidden, joined, tails, starts=state is None)
        hidden = functional.leaky_relu(hidden, LAST_SLOPE)
        hidden = cast(CausalConv1d, self.conv_post).advance(hidden, tails)
        samples, overlap = self._synthesise(hidden, state, final=final)
        collected = tuple(tail.clone() for tail in tails.collected)
        return samples, joined[..., -widest:].clone(), (collected, overlap.clone())

    def _stage(
        self, stage: int, hidden: Tensor, source: Tensor, tails: Tails, *, starts: bool
    ) -> Tensor:
        """One upsampling with the excitation mixed in and its residual blocks."""
        hidden = functional.leaky_relu(hidden, self.config.lrelu_slope)
        hidden = cast(UpsampleConv1d, self.ups[stage]).advance(hidden, tails)
        stride = self.source_strides[stage]
        if stage == len(self.ups) - 1 and starts:
            # One column more than samples / 4: the transform is centred on both ends.
            hidden = torch.cat([hidden[..., 1:2], hidden], dim=-1)
        needed = stride * hidden.shape[-1] + (stride if stride > 1 else 0)
        mixed = self.source_downs[stage](source[..., source.shape[-1] - needed :])
        hidden = hidden + cast(ResBlock, self.source_resblocks[stage]).advance(mixed, tails)
        kernels = len(self.config.resblock_kernel_sizes)
        blocks = self.resblocks[stage * kernels : (stage + 1) * kernels]
        outputs = [cast(ResBlock, block).advance(hidden, tails) for block in blocks]
        return torch.stack(outputs).sum(dim=0) / kernels

    def _synthesise(
        self, hidden: Tensor, state: VocoderState | None, *, final: bool
    ) -> tuple[Tensor, Tensor]:
        """Magnitudes and phases to samples; what is unfinished stays in the overlap."""
        bins = self.config.istft_n_fft // 2 + 1
        magnitude = hidden[:, :bins].exp().clamp(max=LOUDEST_MAGNITUDE)
        phase = hidden[:, bins:].sin()
        parts = torch.cat([magnitude * phase.cos(), magnitude * phase.sin()], dim=1)
        summed, overlap = self.spectrum.overlap_add(parts, None if state is None else state.overlap)
        half = self.config.istft_n_fft // 2
        start = half if state is None else 0
        end = summed.shape[-1] - (half if final else overlap.shape[-1])
        signal, windows = summed[..., start:end]
        limit = self.config.audio_limit
        return (signal / windows).clamp(-limit, limit), overlap


def _source_strides(upsample_rates: tuple[int, ...]) -> list[int]:
    """Frames of the excitation's transform for a column after each upsampling: 15, 3, 1."""
    strides = [1]
    for rate in reversed(upsample_rates[1:]):
        strides.append(strides[-1] * rate)
    return strides[::-1]


def _reflect_start(samples: Tensor, width: int = 8) -> Tensor:
    return torch.cat([samples[:, 1 : width + 1].flip(1), samples], dim=1)


def _reflect_end(samples: Tensor, width: int = 8) -> Tensor:
    return torch.cat([samples, samples[:, -width - 1 : -1].flip(1)], dim=1)
