import asyncio
from collections.abc import AsyncGenerator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.errors import InvalidConfiguration
from antiphon.engine.segments import Segment, SegmentLimits, segments
from antiphon.engine.text.text_stream import TextPiece
from antiphon.engine.turn import FLUSH, Flush

LIMITS = SegmentLimits(sentence_words=2, clause_words=4, most_words=6)


def piece(number: int, mark: str = "") -> TextPiece:
    return TextPiece((number,), f"word{mark}", number, bool(mark), mark == ".")


async def cut(items: list[TextPiece | Flush]) -> list[tuple[list[TextPiece], bool]]:
    """Every segment's pieces, and whether it was flushed."""

    async def source() -> AsyncGenerator[TextPiece | Flush, None]:
        for item in items:
            yield item

    found: list[tuple[list[TextPiece], bool]] = []
    async for segment in segments(source(), LIMITS):
        found.append(([piece async for piece in segment], segment.flush))
    return found


marks = st.sampled_from(["", "", "", ",", "."])


@given(st.lists(st.one_of(marks, st.none()), max_size=40))
def test_nothing_is_lost_and_no_segment_is_too_long(text: list[str | None]) -> None:
    items: list[TextPiece | Flush] = [
        FLUSH if mark is None else piece(number, mark) for number, mark in enumerate(text)
    ]
    found = asyncio.run(cut(items))
    assert [p for pieces, _ in found for p in pieces] == [p for p in items if p is not FLUSH]
    assert sum(flushed for _, flushed in found) == items.count(FLUSH)
    for pieces, flushed in found:
        assert len(pieces) <= LIMITS.most_words
        assert pieces or flushed
        for number, inner in enumerate(pieces[:-1], start=1):
            assert not LIMITS.end_after(inner, number)


async def test_a_sentence_ends_its_segment_unless_it_is_too_short() -> None:
    found = await cut([piece(0, "."), piece(1), piece(2, "."), piece(3), piece(4)])
    assert [len(pieces) for pieces, _ in found] == [3, 2]


async def test_a_long_sentence_is_cut_at_a_clause() -> None:
    found = await cut([piece(0), piece(1, ","), piece(2), piece(3, ","), piece(4), piece(5)])
    assert [len(pieces) for pieces, _ in found] == [4, 2]


async def test_a_mark_behind_the_last_word_stays_with_it() -> None:
    mark = TextPiece((9,), ",", 6, True, False)
    found = await cut([*map(piece, range(6)), mark, piece(7)])
    assert [len(pieces) for pieces, _ in found] == [7, 1]


async def test_a_segment_hands_on_its_pieces_as_they_come() -> None:
    gate = asyncio.Event()

    async def source() -> AsyncGenerator[TextPiece | Flush, None]:
        yield piece(0)
        await gate.wait()
        yield piece(1)

    cuts = segments(source(), LIMITS)
    segment: Segment = await anext(cuts)
    pieces = segment.__aiter__()
    assert await asyncio.wait_for(anext(pieces), 1) == piece(0)
    gate.set()
    assert await asyncio.wait_for(anext(pieces), 1) == piece(1)


@pytest.mark.parametrize("limits", [(0, 4, 6), (5, 4, 6), (2, 7, 6)])
def test_bounds_that_do_not_grow_are_refused(limits: tuple[int, int, int]) -> None:
    with pytest.raises(InvalidConfiguration) as error:
        SegmentLimits(*limits)
    assert error.value.field == "segments"
