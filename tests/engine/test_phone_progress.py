"""Words placed by the codes' start flags, however text and codes are interleaved."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.interface import SpeechProgress
from antiphon.engine.phone_codes import PHONES, SILENCE, begins, phone_named, phone_of
from antiphon.engine.phone_progress import PhoneProgress
from antiphon.engine.text.text_stream import TextPiece

SPACE, MARK = 1000, 1001
IDS = {phone: phone for phone in range(SILENCE)}
HELLO, WORLD = ("HH", "AH", "L", "OW"), ("W", "ER", "L", "D")


def word(*phones: str, text: str = "", at: int = 0, marked: bool = False) -> TextPiece:
    ids = (SPACE, *(phone_named(phone) for phone in phones))
    return TextPiece(ids, text or "".join(phones), at, marked, marked)


def mark(text: str = ",", at: int = 0) -> TextPiece:
    return TextPiece((MARK,), text, at, True, False)


def codes(spoken: str) -> list[int]:
    """`HH2 SIL3`: two tokens of HH, then three of silence."""
    found = []
    for part in spoken.split():
        name = part.rstrip("0123456789")
        count = int(part[len(name) :] or 1)
        phone = PHONES.index(name)
        found += [phone + 40 * (1 + 3 * (token == 0)) for token in range(count)]
    return found


def timed(pieces: list[TextPiece], spoken: list[int]) -> list[tuple[str, float, float]]:
    tracker = PhoneProgress(IDS, 1.0)
    tracker.begin_segment()
    for piece in pieces:
        tracker.piece(piece)
    for code in spoken:
        tracker.token(code)
    tracker.end_segment()
    return [(each.text, each.start_s, each.end_s) for each in tracker.until(math.inf)]


def test_codes_are_read_as_the_checkpoint_writes_them() -> None:
    code = PHONES.index("HH") + 40 * (2 + 3 * 1)
    assert (PHONES[phone_of(code)], begins(code), begins(code - 120)) == ("HH", True, False)
    assert (phone_named("AH0"), phone_named("ZH"), len(PHONES)) == (2, SILENCE - 1, 40)


@pytest.mark.parametrize(
    ("spoken", "hello", "world"),
    [
        ("SIL2 HH AH2 L OW3 W2 ER3 L D2 SIL4", (2, 9), (9, 17)),
        # A rest between the words belongs to neither.
        ("HH AH L OW SIL5 W ER L D", (0, 4), (9, 13)),
        # Slips: left out at the end and at the start, changed, added, a word said twice.
        ("HH AH L SIL2 W ER L D", (0, 3), (5, 9)),
        ("HH AH L OW3 ER L D", (0, 6), (6, 9)),
        ("HH AH L OW3 V ER L D", (0, 6), (6, 10)),
        ("HH AH L OW3 W ER R L D", (0, 6), (6, 11)),
        ("HH AH L OW HH AH L OW W ER L D", (0, 8), (8, 12)),
        # A word that is not said takes no time.
        ("HH AH L OW2", (0, 5), (5, 5)),
        ("W ER L D", (0, 0), (0, 4)),
    ],
)
def test_a_word_lasts_from_its_first_phone_to_the_next_word_or_a_rest(
    spoken: str, hello: tuple[int, int], world: tuple[int, int]
) -> None:
    found = timed([word(*HELLO, text="hello"), word(*WORLD, text="world")], codes(spoken))
    assert found == [("hello", *hello), ("world", *world)]


def test_a_silence_is_the_marks_before_it() -> None:
    pieces = [word(*HELLO, text="hello"), mark(), word(*WORLD, text="world"), mark("."), mark("!")]
    found = timed(pieces, codes("SIL HH AH L OW2 SIL3 W ER L D SIL2"))
    assert found == [
        ("hello", 1, 6), (",", 6, 9), ("world", 9, 13), (".", 13, 15), ("!", 15, 15)
    ]  # fmt: skip
    pieces = [word(*HELLO, text="hello.", marked=True), word(*WORLD, text="world.", marked=True)]
    found = timed(pieces, codes("HH AH L OW2 SIL3 W ER L D SIL2"))
    assert found == [("hello.", 0, 8), ("world.", 8, 14)]
    # No silence, and a word between that is not said.
    pieces = [word(*HELLO, text="hello"), mark(), word("ZH", "AW", text="none"), word(*WORLD)]
    found = timed(pieces, codes("HH AH L OW2 W ER L D"))
    assert found == [("hello", 0, 5), (",", 5, 5), ("none", 5, 5), ("WERLD", 5, 9)]


def test_a_word_is_reported_with_the_rest_behind_it_and_not_before_it_was_heard() -> None:
    tracker = PhoneProgress(IDS, 0.04)
    tracker.begin_segment()
    tracker.piece(word(*HELLO, text="hello", at=5))
    for code in codes("HH2 AH2 L2 OW2"):
        tracker.token(code)
        assert tracker.until(math.inf) == []
    for code in codes("SIL"):
        tracker.token(code)
    assert tracker.until(0.31) == []
    assert tracker.until(0.32) == [SpeechProgress("hello", 5, 0.0, 0.32)]
    assert tracker.until(math.inf) == []


pieces_of_a_segment = st.lists(
    st.lists(st.integers(0, SILENCE - 1), max_size=6), min_size=1, max_size=8
)


@st.composite
def turns(draw: st.DrawFn) -> list[tuple[list[TextPiece], list[int]]]:
    """Segments of words (some of them marks), and what an unreliable LM says of each."""
    found, at = [], 0
    for words in draw(st.lists(pieces_of_a_segment, min_size=1, max_size=3)):
        pieces = []
        for phones in words:
            at += 1
            marked = draw(st.booleans())
            pieces.append(TextPiece((SPACE, *phones), f"w{at}", at, marked, False))
        spoken: list[int] = []
        for phone in [phone for phones in words for phone in phones]:
            slip = draw(st.sampled_from(["", "", "", "", "left out", "changed", "rest", "twice"]))
            said = draw(st.integers(0, SILENCE - 1)) if slip == "changed" else phone
            for _ in range({"left out": 0, "twice": 2}.get(slip, 1)):
                length = draw(st.integers(1, 3))
                spoken += [said + 160, *[said + 40] * (length - 1)]
            if slip == "rest":
                spoken += [SILENCE + 160, SILENCE + 40]
        found.append((pieces, spoken[:60]))
    return found


def whole(turn: list[tuple[list[TextPiece], list[int]]]) -> list[SpeechProgress]:
    tracker = PhoneProgress(IDS, 1.0)
    for pieces, spoken in turn:
        tracker.begin_segment()
        for piece in pieces:
            tracker.piece(piece)
        for code in spoken:
            tracker.token(code)
        tracker.end_segment()
    return tracker.until(math.inf)


@given(turns(), st.data())
def test_each_word_once_in_order_and_the_same_for_every_split(
    turn: list[tuple[list[TextPiece], list[int]]], data: st.DataObject
) -> None:
    tracker = PhoneProgress(IDS, 1.0)
    found: list[SpeechProgress] = []
    made = 0

    def speak() -> None:
        # The listener is somewhere behind the LM.
        heard = data.draw(st.integers(max(0, made - 6), made))
        reported = tracker.until(heard)
        assert all(each.end_s <= heard for each in reported)
        found.extend(reported)

    for pieces, spoken in turn:
        tracker.begin_segment()
        text, tokens = list(pieces), list(spoken)
        while text or tokens:
            if text and (not tokens or data.draw(st.booleans())):
                tracker.piece(text.pop(0))
            else:
                tracker.token(tokens.pop(0))
                made += 1
            speak()
        tracker.end_segment()
    found += tracker.until(made)
    assert found == whole(turn)
    assert [each.characters for each in found] == list(range(1, len(found) + 1))
    assert len(found) == sum(len(pieces) for pieces, _ in turn)
    for before, after in pairwise(found):
        assert before.start_s <= before.end_s <= after.start_s
