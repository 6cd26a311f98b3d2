"""The native protocol over real sockets."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from websockets.exceptions import ConnectionClosed

from antiphon.server.audio import AudioFormat, messages
from tests.server.harness import Client, Running, assert_same_sound, serving, talking
from tests.server.tone_engine import VOICES, WORD_SAMPLES, speech

TEXT = "one two three four five"


async def test_a_turn_is_spoken_exactly() -> None:
    async with serving() as server, talking(server) as client:
        started = await client.configure(voice="mid")
        assert started["session_id"]
        assert {key: started[key] for key in ("voice", "response_format", "sample_rate")} == {
            "voice": "mid",
            "response_format": "pcm",
            "sample_rate": 24_000,
        }
        assert started["watermark"] == "none"
        assert "hop" in started
        heard = await client.say(TEXT, pieces=7)
        assert_same_sound(heard.pcm, speech("mid", TEXT))
        assert heard.order[0] == "audio.start"
        assert heard.order[-2:] == ["audio.done", "session.done"]
        start = heard.of("audio.start")[0]
        assert (start["format"], start["sample_rate"], start["utterance_index"]) == (
            "pcm",
            24_000,
            0,
        )
        assert heard.of("audio.done")[0]["total_bytes"] == sum(map(len, heard.messages))
        done = heard.done
        assert done["samples"] == 5 * WORD_SAMPLES
        assert done["finish_reason"] == "stop"
        assert not done["cancelled"]
        assert done["total_sentences"] == 1
        assert 0 < done["first_packet_ms"] < 1000
        assert done["rtf"] is not None
        assert done["gaps"] == 0
        progress = heard.of("progress")
        assert " ".join(event["text"] for event in progress) == TEXT
        assert progress[-1]["characters"] == len(TEXT) == done["characters"]
        assert [event["samples"] for event in progress] == sorted(
            event["samples"] for event in progress
        )


async def test_it_speaks_before_the_text_is_complete() -> None:
    for split in ("none", "sentence", "clause"):
        async with serving() as server, talking(server) as client:
            await client.configure(split_granularity=split)
            await client.send("input.text", text="one two ")
            assert (await client.event("audio.start"))["sentence_index"] == 0
            assert isinstance(await client.receive(), bytes)


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_050, 24_000, 44_100, 48_000])
async def test_pcm_messages_last_20_to_100_ms(rate: int) -> None:
    async with serving() as server, talking(server) as client:
        await client.configure(sample_rate=rate)
        heard = await client.say(TEXT)
        lengths = [len(message) / 2 / rate for message in heard.messages]
        assert all(0.0199 <= length <= 0.1001 for length in lengths)
        assert abs(heard.done["samples"] - round(5 * WORD_SAMPLES * rate / 24_000)) <= 1


@pytest.mark.parametrize(
    ("name", "rate"),
    [("opus_raw", 24_000), ("opus_raw", 48_000), ("ulaw", 8_000), ("alaw", 8_000), ("wav", 24_000)],
)
async def test_formats_carry_the_tones(name: str, rate: int) -> None:
    async with serving() as server, talking(server) as client:
        started = await client.configure(response_format=name, sample_rate=rate)
        assert started["response_format"] == name
        heard = await client.say("one two", pieces=2)
        samples, got = messages.decode_messages(AudioFormat(name), rate, heard.messages)
        expected = speech("low", "one two")
        assert len(samples) / got == pytest.approx(len(expected) / 24_000, abs=0.03)
        assert _pitch(samples[: got // 5], got) == pytest.approx(
            _pitch(expected[:4_800], 24_000), abs=10
        )
        if name == "opus_raw":
            assert len(heard.messages) in (20, 21)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Running]:
    """One server for the many ways to be refused."""
    async with serving() as server:
        yield server


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("fields", "code", "field"),
    [
        ({"voice": "nobody"}, "unknown_voice", "voice"),
        ({"model": "nothing"}, "unsupported", "model"),
        ({"response_format": "midi"}, "invalid_request", "response_format"),
        ({"sample_rate": 12_345}, "invalid_request", "sample_rate"),
        ({"response_format": "opus_raw", "sample_rate": 44_100}, "invalid_request", "sample_rate"),
        ({"speed": 9.0}, "unsupported", "speed"),
        ({"speed": "fast"}, "malformed_message", "speed"),
        ({"language": "tlh"}, "unsupported", "language"),
        ({"seed": -1}, "invalid_request", "seed"),
        ({"instructions": "whisper"}, "unsupported", "instructions"),
        ({"ref_audio": "AAAA"}, "unsupported", "ref_audio"),
        ({"first_hop": 1}, "invalid_request", "first_hop"),
        ({"first_hop": 20, "max_hop": 10}, "invalid_request", "first_hop"),
        ({"lead_s": -1}, "invalid_request", "lead_s"),
        ({"split_granularity": "word"}, "invalid_request", "split_granularity"),
        ({"context_id": "x" * 129}, "invalid_request", "context_id"),
        ({"context_id": "a\nb"}, "invalid_request", "context_id"),
    ],
)
async def test_wrong_values_are_refused_by_name(
    fields: dict[str, Any], code: str, field: str, shared: Running
) -> None:
    async with talking(shared) as client:
        error = await client.refused(json.dumps({"type": "session.config", **fields}))
        assert (error["code"], error["field"]) == (code, field)
        assert error["message"]
        # The connection is as good as new.
        await client.configure()
        assert (await client.say("one")).done["samples"] == WORD_SAMPLES


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("message", "code", "field"),
    [
        ("{", "malformed_message", None),
        ("[]", "malformed_message", None),
        ("null", "malformed_message", None),
        ('{"type":"speak"}', "malformed_message", "type"),
        ('{"text":"a"}', "malformed_message", "type"),
        ('{"type":"input.text"}', "malformed_message", "text"),
        ('{"type":"input.text","text":5}', "malformed_message", "text"),
        ('{"type":"input.text","text":"a\\u0007"}', "unspeakable_character", "text"),
        ('{"type":"input.text","text":"a\\ud83d"}', "unspeakable_character", "text"),
        ('{"type":"session.config","voice":"\\ud83d"}', "unspeakable_character", "voice"),
        ('{"type":"input.cancel","context_id":"\\ud83d"}', "unspeakable_character", "context_id"),
        ('{"type":"input.text","text":"a","\\ud83d":1}', "unspeakable_character", None),
        ('{"type":"input.text","text":"a","x":' + "[" * 60_000, "malformed_message", None),
        (b"\x00\x01", "malformed_message", None),
    ],
)
async def test_bad_messages_are_refused(
    message: str | bytes, code: str, field: str | None, shared: Running
) -> None:
    async with talking(shared) as client:
        await client.configure()
        error = await client.refused(message)
        assert (error["code"], error["field"]) == (code, field)
        assert (await client.say("one")).done["samples"] == WORD_SAMPLES


async def test_text_that_is_not_utf8_is_refused() -> None:
    async with serving() as server, talking(server) as client:
        await client.configure()
        await client.socket.send(b'{"type":"input.text","text":"\xff\xfe"}', text=True)
        error = await client.event("error")
        assert error["code"] == "malformed_message"
        assert "UTF-8" in error["message"]
        assert (await client.say("one")).done["samples"] == WORD_SAMPLES


async def test_a_message_beyond_the_limit_closes_the_connection() -> None:
    async with (
        serving({"server.limits.message_bytes": 2_000}) as server,
        talking(server) as client,
    ):
        await client.configure()
        await client.send("input.text", text="a " * 2_000)
        with pytest.raises(ConnectionClosed) as closed:
            await client.receive()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009


async def test_text_beyond_the_queue_is_refused() -> None:
    async with (
        serving({"server.limits.text_queue_chars": 100}) as server,
        talking(server) as client,
    ):
        server.engine.behaviour.seconds_per_word = 5.0
        await client.configure()
        await client.send("input.text", text="a " * 49)
        await client.send("input.text", text="b " * 49)
        error = await client.event("error")
        assert (error["code"], error["field"], error["limit"]) == ("text_too_long", "text", 100)


async def test_wrong_orders_are_refused() -> None:
    async with serving() as server, talking(server) as client:
        await client.send("input.text", text="a")
        assert (await client.event("error"))["code"] == "wrong_order"
        await client.send("input.done")
        assert (await client.event("error"))["code"] == "wrong_order"
        await client.configure()
        server.engine.behaviour.seconds_per_word = 0.2
        await client.send("input.text", text="one two ")
        await client.send("session.config")
        error = await client.event("error")
        assert (error["code"], error["field"]) == ("wrong_order", "type")
        await client.send("input.done")
        await client.send("input.text", text="b")
        heard = await client.hear()
        assert heard.of("error")[0]["code"] == "wrong_order"
        assert heard.done["samples"] == 2 * WORD_SAMPLES


@pytest.mark.parametrize("text", ["", "   \n\t "])
async def test_a_turn_without_words_is_done_without_work(text: str) -> None:
    async with serving() as server, talking(server) as client:
        await client.configure()
        if text:
            await client.send("input.text", text=text)
        await client.send("input.done")
        done = await client.event("session.done")
        assert (done["finish_reason"], done["samples"]) == ("empty", 0)
        assert done["first_packet_ms"] is None
        assert server.engine.counters.opened == 0


async def test_flush_speaks_what_is_buffered() -> None:
    async with serving() as server, talking(server) as client:
        await client.configure()
        await client.send("input.text", text="one")
        await client.send("input.flush")
        assert (await client.event("audio.start"))["sentence_text"] == "one"
        assert isinstance(await client.receive(), bytes)
        await client.send("input.text", text=" two")
        await client.send("input.done")
        heard = await client.hear()
        assert heard.done["samples"] == 2 * WORD_SAMPLES


async def test_turns_follow_each_other_on_one_connection() -> None:
    async with serving() as server, talking(server) as client:
        await client.configure(voice="low")
        first = await client.say("one two")
        second = await client.say("three")
        await client.configure(voice="high")
        third = await client.say("three")
        assert [heard.done["utterance_index"] for heard in (first, second, third)] == [0, 1, 2]
        assert_same_sound(second.pcm, speech("low", "three"))
        assert_same_sound(third.pcm, speech("high", "three"))


async def test_two_contexts_speak_at_once_and_say_whose_audio_it_is() -> None:
    async with serving() as server, talking(server) as client:
        server.engine.behaviour.seconds_per_word = 0.01
        await client.configure(context_id="a", voice="low")
        started = await client.configure(context_id="b", voice="top")
        assert started["context_id"] == "b"
        for context in "ab":
            await client.send("input.text", text=TEXT, context_id=context)
            await client.send("input.done", context_id=context)
        audio: dict[str, list[bytes]] = {"a": [], "b": []}
        open_contexts, order = {"a", "b"}, []
        while open_contexts:
            message = await client.receive()
            assert isinstance(message, dict), "binary audio with two contexts open"
            context = message["context_id"]
            if message["type"] == "audio.chunk":
                audio[context].append(base64.b64decode(message["audio_b64"]))
                order.append(context)
            elif message["type"] == "session.done":
                open_contexts.discard(context)
        for context, voice in (("a", "low"), ("b", "top")):
            pcm = np.frombuffer(b"".join(audio[context]), "<i2").astype(np.float32) / 32768
            assert_same_sound(pcm, speech(voice, TEXT))
        assert order != sorted(order), "the second context waited for the first"
        # With one context left, audio is binary again.
        await client.send("session.close", context_id="a")
        heard = await client.say("one", context_id="b")
        assert "audio" in heard.order
        assert not heard.of("audio.chunk")


async def test_word_timestamps_travel_with_the_audio() -> None:
    async with serving() as server, talking(server) as client:
        await client.configure(word_timestamps=True)
        heard = await client.say("one two three")
        chunks = heard.of("audio.chunk")
        assert [chunk["chunk_id"] for chunk in chunks] == list(range(len(chunks)))
        words = [word for chunk in chunks for word in chunk["timestamps"] or []]
        assert words == [
            {"word": word, "start_ms": 200.0 * i, "end_ms": 200.0 * (i + 1)}
            for i, word in enumerate(("one", "two", "three"))
        ]
        assert_same_sound(heard.pcm, speech("low", "one two three"))
        assert chunks[0]["chunk_start_ms"] == 0
        assert chunks[-1]["chunk_end_ms"] == pytest.approx(600.0)


async def test_sentences_are_numbered_where_it_is_asked_for() -> None:
    async with serving() as server, talking(server) as client:
        await client.configure(split_granularity="sentence", word_timestamps=True)
        heard = await client.say("One two. Three!  Four", pieces=5)
        starts = heard.of("audio.start")
        assert [start["sentence_index"] for start in starts] == [0, 1, 2]
        ends = heard.of("audio.done")
        assert [end["sentence_index"] for end in ends] == [0, 1, 2]
        assert [round(end["total_bytes"] / 2 / WORD_SAMPLES) for end in ends] == [2, 1, 1]
        assert heard.done["total_sentences"] == 3
        words = [
            (word["word"], word["start_ms"])
            for chunk in heard.of("audio.chunk")
            for word in chunk["timestamps"] or []
        ]
        assert words == [("One", 0.0), ("two.", 200.0), ("Three!", 0.0), ("Four", 0.0)]


async def test_a_failure_is_told_and_the_next_turn_is_whole() -> None:
    async with serving() as server, talking(server) as client:
        await client.configure()
        server.engine.behaviour.fail_at_word = 1
        await client.send("input.text", text="one two three ")
        heard = await client.hear()
        error = heard.of("error")[0]
        assert (error["code"], error["utterance_index"]) == ("synthesis_failed", 0)
        assert heard.of("audio.done")[0]["error"]
        assert heard.done["finish_reason"] == "error"
        server.engine.behaviour.fail_at_word = None
        await client.send("input.text", text="the rest ")
        await client.send("input.done")
        assert_same_sound((await client.say("one")).pcm, speech("low", "one"))
        assert server.engine.counters.open_now == 0


async def test_a_fault_of_ours_says_nothing_of_the_text() -> None:
    async with serving() as server, talking(server) as client:
        await client.configure()
        server.engine.behaviour.crash_at_word = 0
        heard = await client.say("one")
        error = heard.of("error")[0]
        assert error["code"] == "synthesis_failed"
        assert "secret" not in json.dumps(heard.events)
        assert server.engine.counters.open_now == 0


async def test_ten_sessions_at_once_each_hear_their_own() -> None:
    async with serving() as server:
        server.engine.behaviour.seconds_per_word = 0.01

        async def one(i: int) -> None:
            voice, text = VOICES[i % 4], " ".join(f"word{i}x{n}" for n in range(5 + i))
            async with talking(server) as client:
                await client.configure(voice=voice)
                assert_same_sound((await client.say(text, pieces=9)).pcm, speech(voice, text))

        await asyncio.gather(*(one(i) for i in range(10)))
        assert server.engine.counters.open_now == 0


async def test_close_after_done_lets_the_turn_end() -> None:
    async with serving() as server, talking(server) as client:
        await client.configure()
        await client.send("input.text", text="one two")
        await client.send("input.done")
        await client.send("session.close")
        heard = await client.hear()
        assert_same_sound(heard.pcm, speech("low", "one two"))
        await _closed(client, 1000)


async def test_close_stops_a_turn_that_is_still_open() -> None:
    async with serving() as server, talking(server) as client:
        server.engine.behaviour.seconds_per_word = 0.1
        await client.configure()
        await client.send("input.text", text="one two three four ")
        await client.event("audio.start")
        await client.send("session.close")
        assert (await client.hear()).done["cancelled"]
        await _closed(client, 1000)


async def _closed(client: Client, code: int) -> None:
    with pytest.raises(ConnectionClosed) as closed:
        await client.receive()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == code


def _pitch(samples: np.ndarray[Any, Any], rate: int) -> float:
    window = samples * np.hanning(len(samples))
    spectrum = np.abs(np.fft.rfft(window, 8 * len(window)))
    return float(np.argmax(spectrum) * rate / (8 * len(window)))
