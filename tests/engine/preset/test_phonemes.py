from __future__ import annotations

import json
from pathlib import Path

from hibari.tts import ASSETS

from antiphon.engine.preset.phonemes import MAX_SYMBOLS, phoneme_strings
from antiphon.engine.text.clauses import Clause, ClauseLimits, ClauseSplitter
from antiphon.engine.text.normalizer import StreamingNormalizer
from antiphon.engine.text.words import Word


def clause_of(text: str) -> Clause:
    normalizer = StreamingNormalizer()
    splitter = ClauseSplitter(ClauseLimits(first_min_words=1000, first_max_words=1000))
    splitter.push([*normalizer.push(text), *normalizer.end()])
    (clause,) = splitter.end()
    return clause


def test_words_become_the_voices_symbols() -> None:
    (string,) = phoneme_strings(clause_of("Hello there."))
    assert string.symbols == "həlˈO ðˈɛɹ."
    assert string.mark == "."
    assert [(w.text, w.source_end) for w in string.words] == [("Hello", 5), ("there.", 12)]
    assert [string.symbols[: w.symbols_end] for w in string.words] == ["həlˈO", "həlˈO ðˈɛɹ"]


def test_the_is_strong_before_a_vowel_only() -> None:
    (string,) = phoneme_strings(clause_of("the apple, the pear"))
    first, _, second, _ = string.symbols.split()
    assert (first, second) == ("ði", "ðə")


def test_overrides_are_spoken_as_written() -> None:
    (string,) = phoneme_strings(clause_of("a [T][AH0][M][AA1][T][OW2]"))
    assert string.symbols == "ə təmˈɑTˌO" or string.symbols == "ə təmˈɑtˌO"


def test_every_symbol_is_known_to_the_model() -> None:
    known = json.loads((Path(ASSETS) / "vocab.json").read_text("utf-8"))
    text = "Thirty-two zebras, Charlie; vision: joy! Which judge? NASA's FBI; Qzrkt, Łódź."
    for string in phoneme_strings(clause_of(text)):
        assert set(string.symbols) <= set(known)


def test_words_without_sound_are_accounted_to_the_word_before() -> None:
    words = (
        Word("hello", source_end=5),
        Word("'", source_end=7),
        Word("'", mark=".", source_end=9),
    )
    (string,) = phoneme_strings(Clause(words, True))
    assert [(w.text, w.source_end) for w in string.words] == [("hello.", 9)]
    assert string.mark == "."
    assert phoneme_strings(Clause(words[1:], True)) == []


def test_long_clauses_are_cut_into_strings_the_model_can_take() -> None:
    many = tuple(Word("extraordinary", source_end=i) for i in range(1, 101))
    strings = phoneme_strings(Clause(many, False))
    assert len(strings) > 1
    assert all(len(s.symbols) <= MAX_SYMBOLS for s in strings)
    assert [w.source_end for s in strings for w in s.words] == list(range(1, 101))


def test_one_endless_word_is_cut_too() -> None:
    word = Word("", phones=("T", "AH0") * 600, mark=".", source_end=10)
    strings = phoneme_strings(Clause((word,), True))
    assert all(len(s.symbols) <= MAX_SYMBOLS + 1 for s in strings)
    assert sum(len(s.symbols.replace(" ", "").rstrip(".")) for s in strings) >= 1200
