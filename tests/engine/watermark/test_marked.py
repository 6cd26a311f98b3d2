from __future__ import annotations

import numpy as np
import pytest

from antiphon.engine.watermark.marked import MarkedAudio
from antiphon.engine.watermark.none import NoWatermark


def test_marked_audio_cannot_be_made_outside_a_stage() -> None:
    with pytest.raises(TypeError, match="stage"):
        MarkedAudio(np.zeros(4, np.float32), 24000, "perth", _key=object())
    with pytest.raises(TypeError):
        MarkedAudio(np.zeros(4, np.float32), 24000, "perth")  # type: ignore[call-arg]


def test_no_watermark_passes_samples_on_and_says_so() -> None:
    samples = np.arange(5, dtype=np.float32) / 10
    stream = NoWatermark().stream(24000)
    marked = stream.push(samples)
    np.testing.assert_array_equal(marked.samples, samples)
    assert (marked.watermark, marked.sample_rate, len(marked)) == ("none", 24000, 5)
    assert len(stream.finish()) == 0
    assert not NoWatermark().detect(samples, 24000).marked
