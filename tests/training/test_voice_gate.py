"""The measures of the voice gate, on signals whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("resemblyzer")
pytest.importorskip("speechmos")
pytest.importorskip("faster_whisper")

from antiphon.training.data.phones import PHONES, pronounce
from antiphon.training.data.sentences import Sentence
from antiphon.training.text_ids import encode
from bench.asr import normalised, word_errors
from bench.pronunciation import HARD_WORDS, TOMATOES, bracketed, closest, plain
from bench.voice_measures import click_decibels, pitch_correlation, right_voice_ranks
from bench.voice_sentences import SENTENCES, chosen


def test_a_step_is_a_click_and_a_steady_tone_is_none() -> None:
    tone = (0.3 * np.sin(2 * np.pi * 150 * np.arange(24000) / 24000)).astype(np.float32)
    (clean,) = click_decibels(tone, [12000])
    assert abs(clean) < 3
    broken = tone.copy()
    broken[12000:] += 0.02
    (click,) = click_decibels(broken, [12000])
    assert click > 10


def test_borders_near_the_ends_are_left_out() -> None:
    assert click_decibels(np.zeros(2000, np.float32), [10, 1990]) == []


def test_pitch_correlation_ignores_what_is_unvoiced() -> None:
    wanted = np.linspace(100, 200, 60).astype(np.float32)
    made = wanted * 1.1
    made[::7] = 0
    correlation = pitch_correlation(made, wanted)
    assert correlation == pytest.approx(1.0, abs=1e-4)
    assert pitch_correlation(np.zeros(60, np.float32), wanted) is None


def test_a_voice_is_ranked_by_its_own_prompt() -> None:
    prompts = {name: row for name, row in zip("abc", np.eye(3, dtype=np.float32), strict=True)}
    made = {**prompts, "c": prompts["b"]}
    first, own, others = right_voice_ranks(made, prompts)
    assert first == 2
    assert own == pytest.approx(2 / 3)
    assert others == pytest.approx(1 / 6)


def test_words_are_compared_as_spoken() -> None:
    assert normalised("It's 21 o'clock!") == ["it's", "twenty", "one", "o'clock"]
    assert word_errors("a quiet garden", "A quiet, gardener.") == (1, 3)
    assert word_errors("a quiet garden", "") == (3, 3)


def test_sentences_cover_all_lengths_and_can_all_be_said() -> None:
    lengths = [len(sentence.split()) for sentence in SENTENCES]
    assert len(SENTENCES) == 100
    assert min(lengths) == 1
    assert max(lengths) >= 25
    few = [len(sentence.split()) for sentence in chosen(12)]
    assert min(few) == 1
    assert max(few) >= 15
    for sentence in SENTENCES:
        assert pronounce(Sentence(tuple(sentence.lower().split()))) is not None, sentence


def test_a_word_is_found_inside_a_sentence() -> None:
    heard = plain("P L IY1 Z S EY1 T AH0 M AA1 T OW2 W AH1 N S")
    assert closest(plain(TOMATOES[1]), heard) == 0
    assert closest(plain(TOMATOES[0]), heard) == 1
    assert closest(plain("K AE1 T"), []) == 3


def test_fifty_hard_words_are_written_in_known_phones() -> None:
    assert len(HARD_WORDS) == 50
    for _, phones in HARD_WORDS:
        assert set(plain(phones)) < set(PHONES)
        assert encode(" " + bracketed(phones))
