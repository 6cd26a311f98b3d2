from __future__ import annotations

import numpy as np
import pytest

from antiphon.engine.errors import SynthesisFailed
from antiphon.engine.preset.joins import pause, trimmed
from antiphon.engine.preset.model import SAMPLE_RATE_HZ, Utterance


def tone(silence: int, sound: int) -> Utterance:
    wave = (0.3 * np.sin(np.arange(sound) * 0.05) * np.hanning(sound)).astype(np.float32)
    quiet = np.zeros(silence, np.float32)
    ends = np.array([silence + sound // 2, silence + sound], np.int64)
    return Utterance(np.concatenate([quiet, wave, quiet]), ends)


def test_silence_goes_and_edges_are_soft() -> None:
    speech = trimmed(tone(8000, 12000))
    assert 11000 <= len(speech.samples) < 12600
    assert speech.samples[0] == speech.samples[-1] == 0
    assert np.abs(np.diff(speech.samples)).max() < 0.02
    assert 0 < speech.symbol_ends[0] < speech.symbol_ends[1] <= len(speech.samples)


def test_symbols_in_the_silence_end_within_the_samples() -> None:
    utterance = tone(8000, 12000)
    early = Utterance(utterance.samples, np.array([100, 27999], np.int64))
    speech = trimmed(early)
    assert list(speech.symbol_ends) == [0, len(speech.samples)]


def test_silence_where_words_should_be_is_an_error() -> None:
    ends = np.zeros(1, np.int64)
    with pytest.raises(SynthesisFailed, match="silence"):
        trimmed(Utterance(np.zeros(1000, np.float32), ends))
    with pytest.raises(SynthesisFailed, match="not numbers"):
        trimmed(Utterance(np.full(1000, np.nan, np.float32), ends))


def test_pauses_follow_the_mark_and_the_speed() -> None:
    assert len(pause(".", 1.0)) > len(pause(",", 1.0)) > 0
    assert len(pause(".", 2.0)) == pytest.approx(len(pause(".", 1.0)) / 2, abs=1)
    assert len(pause("", 1.0)) == 0
    assert len(pause(".", 1.0)) < SAMPLE_RATE_HZ
