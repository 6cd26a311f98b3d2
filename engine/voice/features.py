"""Spectral features of reference audio: log-mel, Whisper's log-mel, Kaldi's filterbank.

Each is what one network of a checkpoint was trained on, so every detail (padding, window, floor) is
part of the model. All tables depend on their parameters only and are cached by all of them.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from antiphon.engine.checkpoint.config import MelConfig

WHISPER_RATE = 16_000
KALDI_RATE = 16_000
_MEL_FLOOR = 1e-5
_POWER_FLOOR = 1e-9
_KALDI_FLOOR = float(np.finfo(np.float32).eps)


def log_mel(samples: NDArray[np.float32], config: MelConfig) -> Tensor:
    """Return the vocoder's features of mono audio at `config.sampling_rate`, (frames, mels).

    Natural log of slaney-filtered magnitudes. The signal is reflected by (n_fft - hop) / 2 on both
    sides instead of being centred, so n samples give n // hop frames.
    """
    edge = (config.n_fft - config.hop_size) // 2
    signal = torch.from_numpy(samples)[None]
    signal = torch.nn.functional.pad(signal[None], (edge, edge), mode="reflect")[0]
    spectrum = torch.stft(
        signal,
        config.n_fft,
        hop_length=config.hop_size,
        win_length=config.win_size,
        window=torch.hann_window(config.win_size),
        center=config.center,
        return_complex=True,
    )
    magnitude = torch.sqrt(spectrum.real**2 + spectrum.imag**2 + _POWER_FLOOR)[0]
    filters = slaney_filters(
        config.sampling_rate, config.n_fft, config.num_mels, config.fmin, config.fmax
    )
    return torch.log(torch.clamp(filters @ magnitude, min=_MEL_FLOOR)).T


def whisper_log_mel(samples: NDArray[np.float32], mels: int = 128) -> Tensor:
    """Return Whisper's features (Radford et al. 2022) of 16 kHz audio, (mels, frames).

    10 ms frames of 25 ms; log10, floored at 8 below the loudest value of the whole signal.
    """
    signal = torch.from_numpy(samples)
    spectrum = torch.stft(
        signal, 400, hop_length=160, window=torch.hann_window(400), return_complex=True
    )
    power = spectrum[..., :-1].abs() ** 2
    filters = slaney_filters(WHISPER_RATE, 400, mels, 0.0, None)
    logarithm = torch.clamp(filters @ power, min=1e-10).log10()
    return (torch.maximum(logarithm, logarithm.max() - 8.0) + 4.0) / 4.0


def kaldi_filterbank(samples: NDArray[np.float32], mels: int = 80) -> Tensor:
    """Return Kaldi's log filterbank of 16 kHz audio in [-1, 1], (frames, mels).

    25 ms frames every 10 ms, whole frames only; without dither. The caller subtracts the mean.
    """
    frames = torch.from_numpy(samples).unfold(0, 400, 160)
    frames = frames - frames.mean(dim=1, keepdim=True)
    previous = torch.cat([frames[:, :1], frames[:, :-1]], dim=1)
    frames = (frames - 0.97 * previous) * _povey_window()
    power = torch.fft.rfft(frames, n=512).abs() ** 2
    return torch.clamp(power @ _kaldi_filters(mels).T, min=_KALDI_FLOOR).log()


@lru_cache(maxsize=16)
def slaney_filters(rate: int, n_fft: int, mels: int, fmin: float, fmax: float | None) -> Tensor:
    """Return triangular mel filters of equal area on Slaney's scale, (mels, n_fft // 2 + 1).

    The scale of the Auditory Toolbox (Slaney 1998): linear to 1 kHz, logarithmic above.
    """
    low, high = _slaney_mel(np.array([fmin, fmax or rate / 2]))
    edges = _slaney_hz(np.linspace(low, high, mels + 2))
    bins = np.linspace(0, rate / 2, n_fft // 2 + 1)
    rising = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    filters = np.maximum(0, np.minimum(rising, falling))
    filters *= (2.0 / (edges[2:] - edges[:-2]))[:, None]
    return torch.from_numpy(filters.astype(np.float32))


_HZ_PER_MEL = 200.0 / 3
_BREAK_HZ = 1000.0
_LOG_STEP = np.log(6.4) / 27


def _slaney_mel(hz: NDArray[np.float64]) -> NDArray[np.float64]:
    above = np.log(np.maximum(hz, _BREAK_HZ) / _BREAK_HZ) / _LOG_STEP
    result: NDArray[np.float64] = np.minimum(hz, _BREAK_HZ) / _HZ_PER_MEL + above
    return result


def _slaney_hz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    break_mel = _BREAK_HZ / _HZ_PER_MEL
    above = np.exp(_LOG_STEP * np.maximum(mel - break_mel, 0.0))
    result: NDArray[np.float64] = np.minimum(mel, break_mel) * _HZ_PER_MEL * above
    return result


@lru_cache(maxsize=1)
def _povey_window() -> Tensor:
    return torch.hann_window(400, periodic=False, dtype=torch.float64).pow(0.85).float()


@lru_cache(maxsize=2)
def _kaldi_filters(mels: int) -> Tensor:
    """Triangles that are straight on Kaldi's mel scale, from 20 Hz to Nyquist, (mels, 257)."""

    def to_mel(hz: NDArray[np.float64]) -> NDArray[np.float64]:
        return 1127.0 * np.log(1.0 + hz / 700.0)

    low, high = to_mel(np.array([20.0, KALDI_RATE / 2]))
    edges = np.linspace(low, high, mels + 2)
    bins = to_mel(np.linspace(0, KALDI_RATE / 2, 257))
    rising = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    filters = np.maximum(0, np.minimum(rising, falling))
    filters[:, -1] = 0.0  # Kaldi drops the Nyquist bin
    return torch.from_numpy(filters.astype(np.float32))
