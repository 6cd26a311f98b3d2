"""Conversion between float samples inside and 16-bit samples at the edges."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from antiphon.engine.watermark.marked import FloatSamples

Int16Samples = NDArray[np.int16]


_KNEE = 0.8
"""Where the rounding of amplified peaks begins: 1.9 dB below full scale."""


def amplified(samples: FloatSamples, gain: float) -> FloatSamples:
    """Multiply by `gain`; what would pass the knee is bent smoothly to stay below full scale."""
    louder = samples * np.float32(gain)
    size = np.abs(louder)
    room = np.float32(1.0 - _KNEE)
    bent = _KNEE + room * np.tanh((size - _KNEE) / room)
    out: FloatSamples = np.where(size > _KNEE, np.copysign(bent, louder), louder)
    return out.astype(np.float32, copy=False)


def to_int16(samples: FloatSamples) -> Int16Samples:
    """Round float samples in [-1, 1] to 16 bit; what lies outside is clipped."""
    rounded: Int16Samples = np.clip(np.rint(samples * 32768.0), -32768, 32767).astype(np.int16)
    return rounded


def to_float(samples: Int16Samples) -> FloatSamples:
    """Scale 16-bit samples to [-1, 1)."""
    return samples.astype(np.float32) / np.float32(32768.0)


def to_pcm(samples: FloatSamples) -> bytes:
    """Signed 16-bit little-endian bytes of float samples."""
    return to_int16(samples).astype("<i2", copy=False).tobytes()


def from_pcm(data: bytes) -> FloatSamples:
    """Float samples of signed 16-bit little-endian bytes (an even number of them)."""
    return to_float(np.frombuffer(data, dtype="<i2").astype(np.int16, copy=False))
