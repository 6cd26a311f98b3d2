"""The measures of the voice gate, on signals whose answers are known."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("resemblyzer")
pytest.importorskip("speechmos")
pytest.importorskip("faster_whisper")

from antiphon.training.data.phones import PHONES, pronounce
from antiphon.training.data.sentences import Sentence
from antiphon.training.data.speakers import HOUSE
from antiphon.training.text_ids import encode
from bench.asr import normalised, word_errors
from bench.phone_listener import closest
from bench.processes import descendants_cpu_s
from bench.pronunciation import HARD_WORDS, TOMATOES, bracketed, plain
from bench.voice_last_words import LONGEST, ends_with, of_every_length
from bench.voice_likeness import HELD_OUT, speakers
from bench.voice_links import teacher_speech
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
    ranking = right_voice_ranks(made, prompts)
    assert ranking.right == ranking.nearer == ("a", "b")
    assert ranking.own == pytest.approx(2 / 3)
    assert ranking.others == pytest.approx(1 / 6)
    between = {**prompts, "c": 0.6 * prompts["c"] + 0.8 * prompts["b"]}
    ranking = right_voice_ranks(between, prompts)
    assert ranking.right == ("a", "b")
    assert ranking.nearer == ("a", "b", "c")


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


def test_last_words_are_asked_of_every_length_and_never_twice() -> None:
    texts = of_every_length(65)
    assert [len(text.split()) for text in texts] == [n % LONGEST + 1 for n in range(65)]
    assert len(set(texts)) == 65
    for text in texts:
        assert pronounce(Sentence(tuple(text.split()))) is not None, text


def test_twenty_voices_of_which_ten_are_held_out() -> None:
    wanted = speakers(list(HOUSE), 14)
    assert len(wanted) == 20
    assert set(HELD_OUT) < set(wanted)
    assert len(HELD_OUT) == 10


class Codes:
    """A recogniser whose answer is known."""

    def __init__(self, phones: str) -> None:
        self._codes = [PHONES.index(phone) + 120 for phone in phones.split()]

    def tokens(self, samples: np.ndarray) -> np.ndarray:
        return np.asarray(self._codes)


def test_a_last_word_is_lost_if_half_of_its_phones_are() -> None:
    quiet = np.zeros(24000, np.float32)
    whole, cut = Codes("DH AH SIL T AH M EY T OW"), Codes("DH AH SIL T AH")
    assert ends_with("tomato.", quiet, whole)  # type: ignore[arg-type]
    assert not ends_with("tomato.", quiet, cut)  # type: ignore[arg-type]


def test_the_teacher_says_the_gates_sentences_in_turn() -> None:
    made = teacher_speech(["Good night.", "See you soon."], dict(list(HOUSE.items())[:2]))
    assert [item.speaker for item in made] == ["hazel", "bruno"]
    assert all(len(item.samples) == 960 * len(item.codes) for item in made)


def test_processor_time_of_children_is_counted() -> None:
    before = descendants_cpu_s()
    code = "import sys\nfor i in range(3_000_000): pass\nprint(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert descendants_cpu_s() > before
