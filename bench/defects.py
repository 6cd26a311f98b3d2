"""Defects that are put into clean recordings, at stated levels.

Each takes mono float32 samples at 24 kHz and returns as many.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from antiphon.engine.voice.quality_measures import HOP_S, analyse
from antiphon.engine.voice.resample import resample

RATE = 24_000
Samples = NDArray[np.float32]


def speech_power(samples: Samples) -> float:
    """Mean square where there is speech."""
    active = analyse(resample(samples, RATE, 16_000)).active
    mask = np.repeat(active, round(HOP_S * RATE))[: len(samples)]
    return float(np.mean(np.square(samples[: len(mask)][mask], dtype=np.float64)))


def with_noise(samples: Samples, snr_db: float, seed: int, *, pink: bool = False) -> Samples:
    """White or pink noise, `snr_db` under the speech."""
    noise = np.random.default_rng(seed).normal(size=len(samples))
    if pink:
        spectrum = np.fft.rfft(noise)
        hertz = np.fft.rfftfreq(len(noise), 1 / RATE)
        noise = np.fft.irfft(spectrum / np.sqrt(np.maximum(hertz, 40)), len(noise))
    wanted = speech_power(samples) * 10 ** (-snr_db / 10)
    noisy: Samples = (samples + noise * np.sqrt(wanted / np.mean(noise**2))).astype(np.float32)
    return noisy


def in_a_room(samples: Samples, decay_s: float, direct_db: float, seed: int) -> Samples:
    """Exponentially decaying noise behind the direct sound, which is `direct_db` above it."""
    random = np.random.default_rng(seed)
    length = int(1.2 * decay_s * RATE)
    tail = random.normal(size=length) * 10 ** (-3 * np.arange(length) / RATE / decay_s)
    tail[: RATE // 250] = 0
    tail *= 10 ** (-direct_db / 20) / np.sqrt(np.sum(tail**2))
    tail[0] = 1.0
    size = 1 << (len(samples) + length).bit_length()
    wet = np.fft.irfft(np.fft.rfft(samples, size) * np.fft.rfft(tail, size), size)
    wet = wet[: len(samples)] * (np.abs(samples).max() / np.abs(wet).max())
    heard: Samples = wet.astype(np.float32)
    return heard


def clipped(samples: Samples, share: float) -> Samples:
    """The loudest `share` of all samples cut off."""
    level = float(np.quantile(np.abs(samples), 1 - share))
    return np.clip(samples, -level, level)


def lowpassed(samples: Samples, hertz: float) -> Samples:
    """Nothing above a frequency, as behind a telephone line."""
    spectrum = np.fft.rfft(samples)
    spectrum[np.fft.rfftfreq(len(samples), 1 / RATE) > hertz] = 0
    return np.fft.irfft(spectrum, len(samples)).astype(np.float32)


def mostly_silent(samples: Samples) -> Samples:
    """1.25 s of the recording, then silence up to 4.25 s."""
    return np.concatenate([samples[: RATE * 5 // 4], np.zeros(3 * RATE, np.float32)])


def robotic(samples: Samples, seed: int) -> Samples:
    """Magnitudes kept and phases lost, in windows of 43 ms, as poor vocoders leave speech."""
    window = torch.hann_window(1024)
    spectrum = torch.stft(torch.from_numpy(samples), 1024, 256, window=window, return_complex=True)
    generator = torch.Generator().manual_seed(seed)
    phases = 2 * torch.pi * torch.rand(spectrum.shape, generator=generator)
    lost = torch.polar(spectrum.abs(), phases)
    made: Samples = torch.istft(lost, 1024, 256, window=window, length=len(samples)).numpy()
    return made
