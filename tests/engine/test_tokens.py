import asyncio
from collections.abc import AsyncGenerator

import pytest

from antiphon.engine.tokens import Border, SegmentMark, TokenBuffer


class Source:
    """Counts up, says when it was closed, and may fail."""

    def __init__(self, count: int, *, error: Exception | None = None) -> None:
        self.count = count
        self.error = error
        self.made = 0
        self.closed = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def tokens(self) -> AsyncGenerator[int, None]:
        try:
            for token in range(self.count):
                await self.gate.wait()
                self.made += 1
                yield token
            if self.error:
                raise self.error
        finally:
            self.closed = True


async def test_all_tokens_come_out_in_order() -> None:
    taken: list[int] = []
    border = Border.NONE
    async with TokenBuffer(Source(1000).tokens(), limit=50) as buffer:
        while border is not Border.TURN:
            await buffer.wait_for(7)
            tokens, border = buffer.take(7)
            taken += tokens
    assert taken == list(range(1000))


async def test_borders_say_what_follows() -> None:
    gate = asyncio.Event()

    async def source() -> AsyncGenerator[int | SegmentMark, None]:
        for item in (1, 2, SegmentMark.END, SegmentMark.BEGIN, 3, SegmentMark.FLUSH, 4):
            yield item
        yield SegmentMark.END
        await gate.wait()

    async with TokenBuffer(source()) as buffer:
        await buffer.wait_for(100)
        assert buffer.take(1) == ([1], Border.NONE)
        assert buffer.take(100) == ([2, 3], Border.FLUSH)
        await buffer.wait_for(2, or_rest=True)
        assert buffer.take(1) == ([4], Border.SEGMENT)
        assert buffer.take(9) == ([], Border.SEGMENT)
        gate.set()
        await buffer.wait_for(1)
        assert buffer.take(9) == ([], Border.TURN)


async def test_the_source_rests_while_enough_tokens_wait() -> None:
    source = Source(1000)
    async with TokenBuffer(source.tokens(), limit=50) as buffer:
        await buffer.wait_for(50)
        await asyncio.sleep(0)
        assert source.made <= 51


async def test_patience_ends_the_wait_with_what_is_there() -> None:
    source = Source(3)
    async with TokenBuffer(source.tokens()) as buffer:
        await buffer.wait_for(2)
        source.gate.clear()
        await buffer.wait_for(30, 0.01)
        assert len(buffer) in (2, 3)


async def test_an_error_comes_after_the_tokens_before_it() -> None:
    async with TokenBuffer(Source(5, error=RuntimeError("boom")).tokens()) as buffer:
        await buffer.wait_for(5)
        assert buffer.take(5) == ([0, 1, 2, 3, 4], Border.NONE)
        with pytest.raises(RuntimeError, match="boom"):
            await buffer.wait_for(1)


async def test_leaving_closes_the_source() -> None:
    source = Source(1000)
    async with TokenBuffer(source.tokens(), limit=10) as buffer:
        await buffer.wait_for(5)
    assert source.closed
