"""The alignment of heard phones with written ones: every kind of slip, and any order of arrival."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.phone_alignment import PhoneAlignment, Step

SHORT = {Step.SAID: "=", Step.LEFT_OUT: "-", Step.ADDED: "+"}
phones = st.lists(st.integers(0, 5), max_size=40)


def aligned(written: str, heard: str) -> str:
    alignment = PhoneAlignment()
    alignment.write(map(ord, written))
    for phone in heard:
        alignment.hear(ord(phone))
    alignment.end()
    return "".join(SHORT[step] for step in alignment.steps())


@pytest.mark.parametrize(
    ("written", "heard", "steps"),
    [
        ("abcdef", "abcdef", "======"),
        ("abcdef", "abxdef", "======"),  # changed
        ("abcdef", "abdef", "==-==="),  # left out
        ("abcdef", "abxcdef", "==+===="),  # added
        ("abcdef", "aabcdef", "=+====="),  # repeated
        # A word left out, a word said twice, and one said as another.
        ("abcdefghijklmnop", "abchijklmnop", "===----" + 9 * "="),
        ("abcdefghijklmnop", "abcdefgdefghijklmnop", 7 * "=" + 4 * "+" + 9 * "="),
        ("abcdefgh", "abcdexyz", 8 * "="),
        # The speech ends early: what is not said is left over.
        ("abcdefgh", "abcd", "===="),
        ("", "abc", "+++"),
    ],
)
def test_a_slip_is_called_what_it_is(written: str, heard: str, steps: str) -> None:
    assert aligned(written, heard) == steps


def test_what_fits_is_certain_at_once_and_a_slip_after_two_more() -> None:
    alignment = PhoneAlignment()
    alignment.write(range(10))
    found = []
    for phone in (0, 1, 99, 3, 4):
        alignment.hear(phone)
        found.append(len(list(alignment.steps())))
    assert found == [1, 1, 0, 0, 3]


def test_a_runaway_without_text_is_forgotten() -> None:
    alignment = PhoneAlignment()
    for phone in range(1000):
        alignment.hear(phone)
        assert all(step is Step.ADDED for step in alignment.steps())
        assert alignment.waiting <= 64


@given(phones, phones, st.lists(st.booleans(), max_size=90))
def test_it_does_not_depend_on_when_the_phones_come(
    written: list[int], heard: list[int], turns: list[bool]
) -> None:
    once = PhoneAlignment()
    once.write(written)
    for phone in heard:
        once.hear(phone)
    once.end()
    expected = list(once.steps())
    streamed = PhoneAlignment()
    to_write, to_hear, found = list(written), list(heard), []
    for writes in turns:
        if writes and to_write:
            streamed.write([to_write.pop(0)])
        elif to_hear:
            streamed.hear(to_hear.pop(0))
        found += streamed.steps()
    streamed.write(to_write)
    for phone in to_hear:
        streamed.hear(phone)
        found += streamed.steps()
    streamed.end()
    found += streamed.steps()
    assert found == expected
    assert sum(step is not Step.LEFT_OUT for step in found) == len(heard)
    assert sum(step is not Step.ADDED for step in found) <= len(written)
