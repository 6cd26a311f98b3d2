"""Any split of a text gives the same words, in bounded memory."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from antiphon.engine.text.normalizer import MAX_HELD_CHARACTERS, StreamingNormalizer
from tests.engine.text.helpers import CUTS, TEXTS, normalise, split


@settings(max_examples=400, deadline=None)
@given(TEXTS, CUTS)
def test_every_split_gives_the_same_words(text: str, cuts: list[int]) -> None:
    assert normalise(*split(text, cuts)) == normalise(text)


@pytest.mark.parametrize(
    "text", ["e.g.|\tI ", "g. \u0301\tI.,", "7 1\ufe0f\u20e3 km ", "[a](b c) d"]
)
def test_texts_that_once_depended_on_their_pieces(text: str) -> None:
    assert normalise(*text) == normalise(text)


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_single_characters_give_the_same_words(text: str) -> None:
    assert normalise(*text) == normalise(text)


@settings(max_examples=200, deadline=None)
@given(TEXTS)
def test_words_are_well_formed(text: str) -> None:
    words = normalise(text)
    ends = [word.source_end for word in words]
    assert ends == sorted(ends)
    assert all(0 <= end <= len(text) for end in ends)
    assert all(word.mark in tuple(".,!?;:") or not word.mark for word in words)
    for before, word in zip([None, *words], words, strict=False):
        if not word.text:
            assert word.mark
            assert before is not None
            assert before.text
            assert not before.mark


@pytest.mark.parametrize(
    "run", ["x", "1", "x1", "$", "-", "[", "a.", "é", "你", "😀", "*", "(a", "1/"]
)
def test_a_run_without_white_space_is_never_held_whole(run: str) -> None:
    stream = StreamingNormalizer()
    most = 0
    words = []
    for _ in range(10_000 // len(run)):
        words += stream.push(run)
        most = max(most, stream.held_characters)
    words += stream.end()
    assert most <= MAX_HELD_CHARACTERS
    assert stream.held_characters == 0


def test_letters_of_a_cut_run_are_all_spoken() -> None:
    words = normalise("x" * 10_000)
    assert sum(len(word.text) for word in words) == 10_000
    assert max(len(word.text) for word in words) <= 40


@pytest.mark.parametrize(
    ("pieces", "out"),
    [
        (["Hello"], [[]]),
        (["Hello", " w"], [[], ["Hello"]]),
        (["Hello,"], [["Hello,"]]),
        (["$5", ".50", " p", "er"], [[], [], [], ["five", "dollars", "and", "fifty", "cents"]]),
        (["$5 ", "for", " now"], [[], ["five", "dollars"], ["for"]]),
        (["7", ":30", " p", "m", " now"], [[], [], [], [], ["seven", "thirty", "PM"]]),
        (["7 ", "hat", "s "], [[], ["seven"], ["hats"]]),
        (["7 ", "c", "ats"], [[], [], ["seven"]]),
        (["Dr. ", "S", "mith "], [[], ["doctor"], ["Smith"]]),
        (["Elm Dr. ", "is"], [["Elm"], ["drive"]]),
        (["It is 3. ", "T"], [["It", "is", "three."], []]),
        (["in Nov. ", "30, ", "we "], [["in"], [], ["November", "thirtieth,", "we"]]),
        (["one ", "\n", "T"], [["one"], [], ["."]]),
        (["one ", "\n", "\n"], [["one"], [], ["."]]),
        (["one ", "\n", "two "], [["one"], [], ["two"]]),
    ],
)
def test_words_leave_as_soon_as_they_are_certain(pieces: list[str], out: list[list[str]]) -> None:
    stream = StreamingNormalizer()
    assert [[word.text + word.mark for word in stream.push(piece)] for piece in pieces] == out


def test_flush_speaks_what_is_held_and_more_may_follow() -> None:
    stream = StreamingNormalizer()
    assert stream.push("It costs $5") != []
    assert [word.text for word in stream.flush()] == ["five", "dollars"]
    assert stream.flush() == []
    assert [word.text for word in stream.push(" and more ")] == ["and", "more"]
    assert stream.end() == []
