"""Band-limited resampling, equal to the one the checkpoints' features were made with.

A Hann-windowed sinc of 6 zero crossings with the cut-off at 0.99 of the lower Nyquist frequency
(J. O. Smith, "Digital Audio Resampling"; the defaults of torchaudio's `Resample`, by golden
numbers). For features of reference recordings, whole signals only.
"""

from __future__ import annotations

from functools import lru_cache
from math import ceil, gcd

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ZERO_CROSSINGS = 6
ROLLOFF = 0.99


@lru_cache(maxsize=8)
def _kernels(source: int, target: int) -> tuple[Tensor, int]:
    """Return one filter per output phase, (target, 1, taps), and the left padding.

    Rates are given without their common factor.
    """
    cutoff = min(source, target) * ROLLOFF
    half_width = ceil(ZERO_CROSSINGS * source / cutoff)
    taps = np.arange(-half_width, half_width + source, dtype=np.float64) / source
    phases = -np.arange(target, dtype=np.float64)[:, None] / target
    position = np.clip((phases + taps) * cutoff, -ZERO_CROSSINGS, ZERO_CROSSINGS)
    window = np.cos(position * np.pi / ZERO_CROSSINGS / 2) ** 2
    filters = np.sinc(position) * window * (cutoff / source)
    return torch.from_numpy(filters.astype(np.float32))[:, None], half_width


def resample(samples: NDArray[np.float32], source_hz: int, target_hz: int) -> NDArray[np.float32]:
    """Change the rate of a mono signal; (n,) becomes (⌈n · target / source⌉,)."""
    if source_hz == target_hz or len(samples) == 0:
        return samples
    common = gcd(source_hz, target_hz)
    source, target = source_hz // common, target_hz // common
    filters, pad = _kernels(source, target)
    padded = torch.nn.functional.pad(torch.from_numpy(samples)[None, None], (pad, pad + source))
    phases = torch.nn.functional.conv1d(padded, filters, stride=source)
    length = ceil(target * len(samples) / source)
    result: NDArray[np.float32] = phases.transpose(1, 2).reshape(-1)[:length].numpy()
    return result
