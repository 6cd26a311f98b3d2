"""Barge-in: after a cancel nothing of the turn follows, and nothing of it is left."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.server.harness import Client, Running, assert_same_sound, eventually, serving, talking
from tests.server.tone_engine import WORD_SAMPLES, speech

LONG = " ".join(f"word{i}" for i in range(200))


async def _freed(server: Running, within_s: float = 1.0) -> None:
    counters, sessions = server.engine.counters, server.house.resources.sessions
    await eventually(lambda: not counters.open_now and not sessions.taken, within_s)


async def _before_text(client: Client) -> None:
    await client.send("input.text", text="  ")


async def _after_first_text(client: Client) -> None:
    await client.send("input.text", text="wor")


async def _while_the_first_word_is_made(client: Client) -> None:
    await client.send("input.text", text=LONG)


async def _after_the_first_audio(client: Client) -> None:
    await client.send("input.text", text=LONG)
    while not isinstance(await client.receive(), bytes):
        pass


async def _after_the_end_of_the_text(client: Client) -> None:
    await _after_the_first_audio(client)
    await client.send("input.done")
    for _ in range(5):
        await client.receive()


STAGES = [
    _after_first_text,
    _while_the_first_word_is_made,
    _after_the_first_audio,
    _after_the_end_of_the_text,
]


@pytest.mark.parametrize("fmt", ["pcm", "opus_raw"])
@pytest.mark.parametrize("stage", STAGES)
async def test_cancel_at_every_stage(stage: object, fmt: str) -> None:
    async with serving() as server, talking(server) as client:
        server.engine.behaviour.seconds_per_word = 0.03
        await client.configure(response_format=fmt, sample_rate=24_000)
        await stage(client)  # type: ignore[operator]
        await client.send("input.cancel")
        heard = await client.hear()
        assert heard.done["cancelled"]
        assert heard.done["finish_reason"] == "cancelled"
        assert heard.done["samples"] < len(LONG.split()) * WORD_SAMPLES
        made = server.engine.counters.words
        await _freed(server)
        assert server.engine.counters.words <= made + 1
        # The next turn starts clean, and nothing of the last one comes between.
        await client.configure(response_format="pcm", sample_rate=24_000)
        assert_same_sound((await client.say("one two")).pcm, speech("low", "one two"))


async def test_cancel_without_a_turn_is_no_turn() -> None:
    async with serving() as server, talking(server) as client:
        await client.configure()
        await _before_text(client)
        await client.send("input.cancel")
        heard = await client.say("one")
        assert heard.done["utterance_index"] == 0
        assert not heard.done["cancelled"]


async def test_the_answer_to_a_cancel_does_not_wait_for_the_engine() -> None:
    async with serving() as server, talking(server) as client:
        server.engine.behaviour.seconds_per_word = 0.01
        server.engine.behaviour.cancel_takes_s = 0.5
        await client.configure()
        await _after_the_first_audio(client)
        before = time.monotonic()
        await client.send("input.cancel")
        heard = await client.hear()
        assert heard.done["cancelled"]
        assert time.monotonic() - before < 0.25


async def test_a_new_turn_waits_for_its_predecessor_at_full_house() -> None:
    async with serving({"server.limits.max_sessions": 1}) as server, talking(server) as client:
        server.engine.behaviour.seconds_per_word = 0.01
        server.engine.behaviour.cancel_takes_s = 0.2
        await client.configure()
        await _after_the_first_audio(client)
        await client.send("input.cancel")
        await client.hear()
        assert_same_sound((await client.say("one")).pcm, speech("low", "one"))


async def test_a_cancel_ends_one_context_only() -> None:
    async with serving() as server, talking(server) as client:
        server.engine.behaviour.seconds_per_word = 0.02
        for context in "ab":
            await client.configure(context_id=context)
        await client.send("input.text", text=LONG, context_id="a")
        await client.send("input.text", text="one two three four", context_id="b")
        await client.event("audio.start")
        await client.send("input.done", context_id="b")
        await client.send("input.cancel", context_id="a")
        contexts = [event["context_id"] for event in (await client.hear("a")).of("audio.chunk")]
        heard = await client.hear("b")
        assert {event["context_id"] for event in heard.of("audio.chunk")} == {"b"}
        assert heard.done["samples"] == 4 * WORD_SAMPLES
        assert heard.done["finish_reason"] == "stop"
        assert len(contexts) < 200


@pytest.mark.parametrize("politely", [True, False])
async def test_a_closed_socket_is_a_cancel(politely: bool) -> None:
    async with serving() as server:
        server.engine.behaviour.seconds_per_word = 0.02
        async with talking(server) as client:
            await client.configure()
            await _after_the_first_audio(client)
            if politely:
                await client.socket.close()
            else:
                client.socket.transport.abort()
            await _freed(server)
            assert server.engine.counters.words < 150
        cancels = server.house.metrics.registry.get_sample_value("antiphon_cancels_total")
        assert cancels == 1


async def test_what_is_under_way_at_a_cancel_is_bounded() -> None:
    async with serving() as server, talking(server) as client:
        # As fast as it can: only reading holds the engine back.
        await client.configure()
        await client.send("input.text", text=LONG)
        await client.event("audio.start")
        await asyncio.sleep(0.3)
        await client.send("input.cancel")
        heard = await client.hear()
        sent_s = heard.done["samples"] / 24_000
        # The library of the client reads a few messages ahead by itself.
        assert sent_s < 2.0 + 2.5
