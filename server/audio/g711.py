"""G.711 by table: a 16-bit sample, seen as unsigned, indexes the byte that stands for it.

The tables are built from the segment formulas of ITU-T G.711: µ-law works on 14-bit samples with a
bias of 33, A-law on 13-bit samples.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from antiphon.server.audio.samples import Int16Samples

ByteTable = NDArray[np.uint8]


def _every_sample() -> NDArray[np.int32]:
    """All 16-bit samples in the order of their unsigned reading, (65536,)."""
    return np.arange(65536, dtype=np.uint16).view(np.int16).astype(np.int32)


def _floor_log2(values: NDArray[np.int32]) -> NDArray[np.int32]:
    return (np.frexp(values.astype(np.float64))[1] - 1).astype(np.int32)


def _ulaw_encoding() -> ByteTable:
    sample = _every_sample() >> 2
    magnitude = np.minimum(np.minimum(np.abs(sample), 8159) + 33, 8191)
    exponent = _floor_log2(magnitude) - 5
    mantissa = (magnitude >> (exponent + 1)) & 15
    table: ByteTable = (((exponent << 4) | mantissa) ^ np.where(sample < 0, 0x7F, 0xFF)).astype(
        np.uint8
    )
    return table


def _alaw_encoding() -> ByteTable:
    sample = _every_sample() >> 3
    magnitude = np.where(sample >= 0, sample, -sample - 1)
    exponent = np.maximum(_floor_log2(np.maximum(magnitude, 1)) - 4, 0)
    shift = np.where(exponent == 0, 1, exponent)
    mantissa = (magnitude >> shift) & 15
    table: ByteTable = (((exponent << 4) | mantissa) ^ np.where(sample < 0, 0x55, 0xD5)).astype(
        np.uint8
    )
    return table


def _ulaw_decoding() -> Int16Samples:
    code = np.arange(256, dtype=np.int32) ^ 0xFF
    magnitude = ((((code & 15) << 3) + 0x84) << ((code >> 4) & 7)) - 0x84
    return np.where(code & 0x80, -magnitude, magnitude).astype(np.int16)


def _alaw_decoding() -> Int16Samples:
    code = np.arange(256, dtype=np.int32) ^ 0x55
    segment = (code >> 4) & 7
    step = (code & 15) << 4
    magnitude = np.where(segment == 0, step + 8, (step + 0x108) << np.maximum(segment - 1, 0))
    return np.where(code & 0x80, magnitude, -magnitude).astype(np.int16)


_ULAW_BYTES = _ulaw_encoding()
_ALAW_BYTES = _alaw_encoding()
_ULAW_SAMPLES = _ulaw_decoding()
_ALAW_SAMPLES = _alaw_decoding()


def encode_ulaw(samples: Int16Samples) -> bytes:
    """µ-law bytes, one a sample."""
    return _ULAW_BYTES[samples.view(np.uint16)].tobytes()


def encode_alaw(samples: Int16Samples) -> bytes:
    """A-law bytes, one a sample."""
    return _ALAW_BYTES[samples.view(np.uint16)].tobytes()


def decode_ulaw(data: bytes) -> Int16Samples:
    """16-bit samples, one a µ-law byte."""
    return _ULAW_SAMPLES[np.frombuffer(data, dtype=np.uint8)]


def decode_alaw(data: bytes) -> Int16Samples:
    """16-bit samples, one an A-law byte."""
    return _ALAW_SAMPLES[np.frombuffer(data, dtype=np.uint8)]
