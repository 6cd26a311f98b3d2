"""Envelopes to samples, with every harmonic's phase tied to the 50 Hz F0 track.

The phase rule is HiFT's own: F0 holds for one mel frame (20 ms) and the phase is its running sum.
The harmonic envelope is made minimum-phase, so the phase of a harmonic follows from the spectrum
and the source alone: what the vocoder must produce is a function of what it is given.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from antiphon.training.data.hibari import Array

SAMPLE_RATE: Final = 24000
MEL_HOP: Final = 480
FRAME: Final = 300
FFT: Final = 1200
_WINDOW: Final = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FFT) / FFT)).astype(np.float32)
_TOP_HZ: Final = 11000.0
_LOG_FLOOR: Final = -9.0
_LOG_TOP: Final = 7.0


def f0_per_mel_frame(f0: Array, mel_frames: int) -> Array:
    """F0 at the centres of the 20 ms mel frames from 12.5 ms frames; 0 stays 0 (unvoiced).

    :param f0: (frames,) Hz at sample positions `300 * k`
    :returns: (mel_frames,) Hz
    """
    position = (np.arange(mel_frames) * MEL_HOP + MEL_HOP / 2) / FRAME
    low = np.clip(np.floor(position).astype(int), 0, len(f0) - 1)
    high = np.clip(low + 1, 0, len(f0) - 1)
    weight = (position - low).astype(np.float32)
    left, right = f0[low], f0[high]
    both = (left > 0) & (right > 0)
    mixed = left * (1 - weight) + right * weight
    nearest = np.where(weight < 0.5, left, right)
    result: Array = np.where(both, mixed, nearest).astype(np.float32)
    return result


def pulses(f0: Array) -> Array:
    """Band-limited pulse train: all harmonics below 11 kHz at unit amplitude, cosine phase.

    :param f0: (mel_frames,) Hz, 0 where unvoiced
    :returns: (480 * mel_frames,) samples
    """
    per_sample = np.repeat(f0, MEL_HOP)
    cycles = np.cumsum(per_sample, dtype=np.float64) / SAMPLE_RATE
    angle = (2 * np.pi * (cycles % 1.0)).astype(np.float32)
    voiced = per_sample > 0
    order = np.floor(_TOP_HZ / np.maximum(per_sample, 40.0)) + 0.5
    half = 2 * np.sin(angle / 2)
    near = np.abs(half) <= 2e-3
    train = np.where(near, order, np.sin(order * angle) / np.where(near, 1.0, half)) - 0.5
    return np.where(voiced, train, 0.0).astype(np.float32)


def minimum_phase(log_magnitude: Array) -> Array:
    """Phase in radians of the minimum-phase response with this log magnitude.

    :param log_magnitude: (frames, 601) natural log
    """
    cepstrum = np.fft.irfft(log_magnitude, n=FFT, axis=1)
    fold = np.zeros(FFT, np.float32)
    fold[0] = fold[FFT // 2] = 1.0
    fold[1 : FFT // 2] = 2.0
    return np.asarray(np.fft.rfft(cepstrum * fold, axis=1).imag, np.float32)


def synthesize(
    harmonic: Array, phase: Array, noise: Array, f0: Array, rng: np.random.Generator
) -> Array:
    """Samples from envelopes.

    :param harmonic, phase, noise: (frames, 601) at 12.5 ms; natural log, radians, natural log
    :param f0: (mel_frames,) Hz at 20 ms
    :returns: (480 * mel_frames,) float32
    """
    samples = len(f0) * MEL_HOP
    frames = samples // FRAME
    source = np.pad(pulses(f0), FFT // 2)
    windows = np.lib.stride_tricks.sliding_window_view(source, FFT)[::FRAME][:frames]
    spectrum = np.fft.rfft(windows * (_WINDOW / (FFT / 4)), axis=1)
    shape = np.minimum(harmonic[:frames], _LOG_TOP) + 1j * phase[:frames]
    spectrum = spectrum * np.exp(shape)
    white = rng.standard_normal((frames, 2 * harmonic.shape[1]), dtype=np.float32)
    spectrum += white.view(np.complex64) * np.exp(np.minimum(noise[:frames], _LOG_TOP))
    return _overlap_add(spectrum.astype(np.complex64), samples)


def _overlap_add(spectrum: "npt.NDArray[np.complex64]", samples: int) -> Array:
    frames, overlap = len(spectrum), FFT // FRAME
    blocks = np.fft.irfft(spectrum, n=FFT, axis=1) * _WINDOW
    blocks = blocks.reshape(frames, overlap, FRAME)
    total = np.zeros((frames + overlap - 1, FRAME), np.float32)
    weight = np.zeros_like(total)
    squared = (_WINDOW * _WINDOW).reshape(overlap, FRAME)
    for part in range(overlap):
        total[part : part + frames] += blocks[:, part]
        weight[part : part + frames] += squared[part]
    flat = (total / np.maximum(weight, 1e-3)).reshape(-1)
    return np.asarray(flat[FFT // 2 : FFT // 2 + samples], np.float32)
