import asyncio
from collections.abc import AsyncGenerator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.interface import (
    FinishReason,
    SpeechEvent,
    SpeechFinished,
    SpeechProgress,
)
from antiphon.engine.turn import FLUSH, TextQueue, Turn


@given(st.lists(st.text(max_size=30), max_size=20), st.integers(1, 7))
def test_the_queue_keeps_every_character_within_its_bound(texts: list[str], limit: int) -> None:
    async def run() -> None:
        queue = TextQueue(limit)

        async def write() -> None:
            for text in texts:
                await queue.put(text)
            queue.end()

        writer = asyncio.create_task(write())
        read = ""
        async for item in queue:
            assert isinstance(item, str)
            assert queue.characters <= limit
            read += item
        await writer
        assert read == "".join(texts)

    asyncio.run(run())


async def test_a_flush_keeps_its_place_and_is_not_repeated() -> None:
    queue = TextQueue(100)
    await queue.put("a")
    queue.flush()
    queue.flush()
    await queue.put("b")
    queue.end()
    assert [item async for item in queue] == ["a", FLUSH, "b"]


async def test_closing_lets_go_of_a_waiting_writer() -> None:
    queue = TextQueue(2)
    writer = asyncio.create_task(queue.put("abcdef"))
    await asyncio.sleep(0)
    queue.close()
    await asyncio.wait_for(writer, 1)
    assert queue.characters == 0


class Counting(Turn):
    """Yields numbered progress; waits for ever after the third."""

    def __init__(self) -> None:
        super().__init__()
        self.unwound = False

    async def _events(self) -> AsyncGenerator[SpeechEvent, None]:
        try:
            for number in range(3):
                yield SpeechProgress(str(number), number, 0, 0)
            await asyncio.Event().wait()
        finally:
            # Unwinding takes a while in real stages.
            await asyncio.sleep(0)
            self.unwound = True


async def test_cancel_reaches_a_stage_that_waits() -> None:
    turn = Counting()
    seen: list[SpeechEvent] = []

    async def read() -> None:
        async for event in turn.events():
            seen.append(event)

    reader = asyncio.create_task(read())
    while len(seen) < 3:  # noqa: ASYNC110 (the turn itself is what is waited for)
        await asyncio.sleep(0)
    await turn.cancel()
    assert turn.unwound
    await asyncio.wait_for(reader, 1)
    assert seen[-1] == SpeechFinished(FinishReason.CANCELLED, 0)
    await turn.cancel()


async def test_cancel_between_two_events_lets_none_follow() -> None:
    turn = Counting()
    events = turn.events()
    await anext(events)
    await turn.cancel()
    assert turn.unwound
    assert await anext(events) == SpeechFinished(FinishReason.CANCELLED, 0)
    with pytest.raises(StopAsyncIteration):
        await anext(events)


async def test_cancel_before_the_first_event() -> None:
    turn = Counting()
    await turn.cancel()
    assert [event async for event in turn.events()] == [SpeechFinished(FinishReason.CANCELLED, 0)]


async def test_a_reader_that_leaves_unwinds_the_chain() -> None:
    turn = Counting()
    events = turn.events()
    await anext(events)
    await events.aclose()
    assert turn.unwound


async def test_a_reader_that_is_cancelled_unwinds_the_chain() -> None:
    turn = Counting()

    async def read() -> None:
        async for _ in turn.events():
            pass

    reader = asyncio.create_task(read())
    for _ in range(10):
        await asyncio.sleep(0)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    for _ in range(10):
        await asyncio.sleep(0)
    assert turn.unwound
