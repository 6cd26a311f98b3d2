from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from antiphon.engine.errors import InvalidRequest, SynthesisFailed
from antiphon.engine.speech_lm.interleave import BistreamSequence, Lengths
from antiphon.engine.speech_lm.layout import Sample, Wait
from antiphon.engine.speech_lm.text_feed import MAX_PIECES, TextFeed
from antiphon.engine.voice.voice import LMPrompt
from tests.engine.speech_lm.cases import stream
from tests.engine.speech_lm.test_interleave import END_OF_PROMPT, vocabulary


def sequence() -> BistreamSequence:
    return BistreamSequence(vocabulary(), LMPrompt((END_OF_PROMPT,)), END_OF_PROMPT, Lengths(2, 20))


async def test_text_waits_until_it_is_asked_for_and_then_all_of_it_comes() -> None:
    machine = sequence()
    feed = TextFeed(machine, stream([(1,), (), (2, 3), (4, 5)]), lambda _: None)
    assert isinstance(machine.advance(), Wait)
    while isinstance(machine.advance(), Wait):
        await feed.more()
    assert isinstance(machine.advance(), Sample)
    await feed.close()


@pytest.mark.parametrize(
    ("raised", "seen"),
    [(OSError("gone"), SynthesisFailed), (InvalidRequest("no", field="text"), InvalidRequest)],
)
async def test_what_the_source_raises_comes_out_typed(
    raised: Exception, seen: type[Exception]
) -> None:
    async def broken() -> AsyncIterator[tuple[int, ...]]:
        yield (1,)
        await asyncio.sleep(0)
        raise raised

    feed = TextFeed(sequence(), broken(), lambda _: None)
    await feed.more()
    with pytest.raises(seen):
        await feed.more()
    await feed.close()


async def test_an_endless_source_is_read_a_bounded_way_ahead() -> None:
    read = 0

    async def endless() -> AsyncIterator[tuple[int, ...]]:
        nonlocal read
        while True:
            read += 1
            yield (1,)

    feed = TextFeed(sequence(), endless(), lambda _: None)
    for _ in range(3):
        await asyncio.sleep(0)
    assert read <= MAX_PIECES + 1
    await feed.close()
