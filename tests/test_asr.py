from __future__ import annotations

import pytest

from bench.asr import normalised, word_error_rate, word_errors


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("It costs $5.50.", "it costs five dollars and fifty cents"),
        ("At 7:30 p.m., OK?", "At seven thirty PM okay"),
        ("In 1984, 21 people", "in nineteen eighty-four twenty one people"),
        ("the 3rd of 1,250", "the third of one thousand two hundred and fifty"),
        ("It's a 50% cut & more", "it's a fifty percent cut and more"),
    ],
)
def test_spellings_of_the_same_words_are_equal(written: str, spoken: str) -> None:
    assert normalised(written) == normalised(spoken)


def test_errors_are_counted_by_edit_distance() -> None:
    assert word_errors("one two three four", "one too three four five") == (2, 4)
    assert word_errors("hello", "") == (1, 1)
    assert word_error_rate([("a b c d", "a b c d"), ("e f", "e x")]) == pytest.approx(1 / 6)
