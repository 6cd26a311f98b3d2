import asyncio
from collections.abc import AsyncGenerator

import pytest

from antiphon.engine.tokens import TokenBuffer


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
    async with TokenBuffer(Source(1000).tokens(), limit=50) as buffer:
        while not (buffer.exhausted and not len(buffer)):
            await buffer.wait_for(7, None)
            taken += buffer.take(7)
    assert taken == list(range(1000))


async def test_the_source_rests_while_enough_tokens_wait() -> None:
    source = Source(1000)
    async with TokenBuffer(source.tokens(), limit=50) as buffer:
        await buffer.wait_for(50, None)
        await asyncio.sleep(0)
        assert source.made <= 51


async def test_patience_ends_the_wait_with_what_is_there() -> None:
    source = Source(3)
    async with TokenBuffer(source.tokens()) as buffer:
        await buffer.wait_for(2, None)
        source.gate.clear()
        await buffer.wait_for(30, 0.01)
        assert len(buffer) in (2, 3)


async def test_an_error_comes_after_the_tokens_before_it() -> None:
    async with TokenBuffer(Source(5, error=RuntimeError("boom")).tokens()) as buffer:
        await buffer.wait_for(5, None)
        assert buffer.take(5) == [0, 1, 2, 3, 4]
        with pytest.raises(RuntimeError, match="boom"):
            await buffer.wait_for(1, None)
        assert not buffer.exhausted


async def test_leaving_closes_the_source() -> None:
    source = Source(1000)
    async with TokenBuffer(source.tokens(), limit=10) as buffer:
        await buffer.wait_for(5, None)
    assert source.closed
