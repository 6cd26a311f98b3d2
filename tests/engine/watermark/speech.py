"""A few seconds of speech for the watermark tests."""

from __future__ import annotations

from functools import cache

import numpy as np
from hibari import Hibari

from antiphon.engine.watermark.interface import Watermark
from antiphon.engine.watermark.marked import FloatSamples

RATE_HZ = 24000
_TEXT = "My neighbour found a letter behind the kitchen clock, and read it to her brother at noon."


@cache
def speech() -> FloatSamples:
    """Return 5 s of speech at 24 kHz."""
    samples: FloatSamples = Hibari()(_TEXT, seed=0)
    start = RATE_HZ * 3 // 8  # the voice begins with 0.35 s of silence
    return samples[start : start + 5 * RATE_HZ]


def marked(
    watermark: Watermark, samples: FloatSamples, sizes: list[int], rate: int
) -> FloatSamples:
    """Mark samples in pieces of the given sizes, used in turn."""
    stream = watermark.stream(rate)
    parts: list[FloatSamples] = []
    start = turn = pushed = out = 0
    while start < len(samples):
        size = sizes[turn % len(sizes)]
        piece = samples[start : start + size]
        parts.append(stream.push(piece).samples)
        start, turn = start + size, turn + 1
        pushed, out = pushed + len(piece), out + len(parts[-1])
        assert pushed - out <= stream.hold_back_samples
    parts.append(stream.finish().samples)
    return np.concatenate(parts)
