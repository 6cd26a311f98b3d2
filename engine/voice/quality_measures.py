"""What a recording is measured by, without a reference to compare it with.

All measures take mono audio and return one number. They were chosen to be plain: each looks at one
thing, and each is proved by putting that very defect into clean recordings (see the tests).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from antiphon.engine.voice.features import slaney_filters

RATE = 16_000
HOP = 160
WINDOW = 512
BANDS = 40
HOP_S = HOP / RATE
_TINY = 1e-12

Samples = NDArray[np.float32]
Curve = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Analysis:
    """Band powers of a recording at 16 kHz and where speech is in it."""

    bands: Curve
    """(frames, bands) power, 10 ms a frame."""
    level_db: Curve
    """(frames,)"""
    active: NDArray[np.bool_]
    """(frames,)"""

    @property
    def speech_s(self) -> float:
        """Seconds in which there is speech."""
        return float(self.active.sum()) * HOP_S


def analyse(samples: Samples) -> Analysis:
    """Measure mono 16 kHz audio of at least 0.1 s."""
    signal = torch.from_numpy(samples)
    spectrum = torch.stft(
        signal, WINDOW, HOP, window=torch.hann_window(WINDOW), return_complex=True
    )
    power = spectrum.abs().square().T.double()
    # Below 80 Hz lie rumble and offsets, which are no speech.
    filters = slaney_filters(RATE, WINDOW, BANDS, 80.0, None).double()
    bands = (power @ filters.T).numpy() + _TINY
    level_db = 10 * np.log10(bands.sum(axis=1))
    return Analysis(bands, level_db, _activity(level_db))


def _activity(level_db: Curve) -> NDArray[np.bool_]:
    """Frames well over the quietest ones and not too far under the loudest ones."""
    floor, loud = np.percentile(level_db, [5, 95])
    threshold = max(floor + 0.25 * min(loud - floor, 40.0), loud - 35.0)
    active = level_db > threshold
    return _close_gaps(active, round(0.2 / HOP_S))


def _close_gaps(active: NDArray[np.bool_], longest: int) -> NDArray[np.bool_]:
    """Count pauses inside of words, up to `longest` frames, as speech."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], active, [False]]).astype(np.int8)))
    closed = active.copy()
    for end, start in zip(edges[1:-1:2], edges[2::2], strict=True):
        if start - end <= longest:
            closed[end:start] = True
    return closed


def snr_db(analysis: Analysis) -> float:
    """Speech over noise: mean power of speech frames against the floor of every band.

    Voices leave each band now and then, even where they never pause, so the low percentiles of a
    band are its noise. Their bias is that of a smoothed chi-square distribution.
    """
    smooth = _smooth(analysis.bands, 5)
    noise = np.percentile(smooth, 10, axis=0).sum() * 3.4
    speech = analysis.bands[analysis.active].mean(axis=0).sum() if analysis.active.any() else _TINY
    return float(10 * np.log10(max(speech - noise, _TINY) / noise))


def _smooth(values: Curve, frames: int) -> Curve:
    kernel = np.ones(frames) / frames
    return np.apply_along_axis(lambda column: np.convolve(column, kernel, "valid"), 0, values)


def clipped_share(samples: Samples) -> float:
    """Share of samples in flat tops: runs of 3 or more within 1.5 % of the highest (lowest) one."""
    flat = 0
    for sided in (samples, -samples):
        top = float(sided.max(initial=0.0))
        if top <= 0:
            continue
        near = np.concatenate([[False], sided >= 0.985 * top, [False]])
        edges = np.flatnonzero(np.diff(near.astype(np.int8)))
        lengths = edges[1::2] - edges[::2]
        flat += int(lengths[lengths >= 3].sum())
    return flat / max(1, len(samples))


def decay_s(analysis: Analysis) -> float:
    """Time in which sound dies down by 60 dB, from the fastest falls that are found.

    Speech stops faster than a room does. In every band the falls of 70 ms are measured that begin
    well above the band's floor and end above it; the steep ones among them show the room.
    """
    levels = 10 * np.log10(analysis.bands)
    floor = np.percentile(levels, 10, axis=0)
    length = 7
    steps = np.arange(length + 1) * HOP_S
    steps = steps - steps.mean()
    windows = np.lib.stride_tricks.sliding_window_view(levels, length + 1, axis=0)
    slopes = (windows @ steps) / (steps @ steps)
    falls = (windows[..., 0] > floor + 25) & (windows[..., -1] > floor + 6)
    falls &= (np.diff(windows, axis=-1) < 1.0).all(axis=-1)
    found = slopes[falls]
    if len(found) < 30:
        return 0.0
    steep = np.percentile(found, 5)
    return float(min(10.0, -60.0 / min(steep, -1e-3)))


def bandwidth_hz(samples: Samples, rate: int, threshold_db: float = 55.0) -> float:
    """Highest frequency whose power in the long-term spectrum is not lost.

    Lost is what lies `threshold_db` under the loudest third of an octave.
    """
    size = 2048 if rate > 24_000 else 1024
    signal = torch.from_numpy(samples)
    spectrum = torch.stft(
        signal, size, size // 2, window=torch.hann_window(size), center=False, return_complex=True
    )
    power = spectrum.abs().square().double()
    loud = power.sum(dim=0)
    power = power[:, loud > loud.max() * 1e-4]
    mean = 10 * np.log10(power.mean(dim=1).numpy() + _TINY)
    smooth = np.convolve(mean, np.ones(9) / 9, "same")
    kept = np.flatnonzero(smooth > smooth.max() - threshold_db)
    return float(kept[-1]) * rate / size
