"""The Perth mark as a filter.

Measured: what PerthNet's encoder does to a spectrum hardly depends on the spectrum. Whatever comes
in, each 15.6 Hz bin below 2 kHz is raised or lowered by about 1.8 dB, always the same way (the
patterns of white noise, pink noise and speech correlate at 0.9996; over time a bin's change varies
by 0.1 dB). So the mark is one fixed equaliser, and streaming it needs no look-ahead, no overlap and
no network: a minimum-phase FIR filter with those gains holds nothing back and has no borders.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from antiphon.engine.watermark.marked import FloatSamples
from antiphon.engine.watermark.perth_network import (
    BIN_HZ,
    WINDOW_S,
    PerthNetwork,
    log_spectrum,
)

_CALIBRATION_RATE_HZ = 32000
_CALIBRATION_S = 3.0
_GRID = 8192
"""Points of the spectrum on which the filter is designed: several for each bin of 15.6 Hz."""


def encoder_gains_db(network: PerthNetwork) -> NDArray[np.float64]:
    """Return the mean change (bins,) that the encoder makes to seeded white noise, in decibels."""
    noise = np.random.default_rng(0).standard_normal(round(_CALIBRATION_RATE_HZ * _CALIBRATION_S))
    samples = torch.from_numpy((0.05 * noise).astype(np.float32))
    changes = network.gains_db(log_spectrum(samples, _CALIBRATION_RATE_HZ))
    return np.asarray(changes.mean(1).numpy(), np.float64)


def minimum_phase(gains_db: NDArray[np.float64], sample_rate: int) -> FloatSamples:
    """Return the FIR filter (taps,) with these gains in the lowest bins and 0 dB above.

    The phase comes from the real cepstrum folded onto positive time (Oppenheim and Schafer,
    "Discrete-Time Signal Processing", section on minimum-phase sequences). The taps span one window
    of the network; the second half fades out.
    """
    frequencies = np.fft.rfftfreq(_GRID, 1 / sample_rate)
    edges = np.arange(len(gains_db) + 1) * BIN_HZ
    wanted = np.interp(frequencies, edges, np.append(gains_db, 0.0), right=0.0)
    cepstrum = np.fft.irfft(wanted * (np.log(10) / 20), _GRID)
    fold = np.zeros(_GRID)
    fold[0] = fold[_GRID // 2] = 1
    fold[1 : _GRID // 2] = 2
    impulse = np.fft.irfft(np.exp(np.fft.rfft(cepstrum * fold)), _GRID)
    taps = round(WINDOW_S * sample_rate)
    fade = np.ones(taps)
    fade[taps // 2 :] = np.hanning(taps)[taps // 2 :]
    return (impulse[:taps] * fade).astype(np.float32)


class FilterState:
    """The samples that a filter still remembers; one turn owns it."""

    def __init__(self, taps: FloatSamples) -> None:
        self._taps = taps
        self._past = np.zeros(len(taps) - 1, np.float32)

    def filter(self, samples: FloatSamples) -> FloatSamples:
        """Return as many samples as came in.

        Direct convolution, not by FFT: zeros after the filter's memory stay exact zeros.
        """
        if not len(samples):
            return np.zeros(0, np.float32)
        heard = np.concatenate([self._past, samples])
        self._past = heard[len(samples) :]
        filtered: FloatSamples = np.convolve(heard, self._taps, mode="valid")
        return filtered
