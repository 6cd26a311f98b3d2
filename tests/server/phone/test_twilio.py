"""Twilio Media Streams and its kin: scripted peers that send the real bytes over real sockets."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import time

import httpx
import numpy as np
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from antiphon.server.audio.g711 import decode_ulaw, encode_ulaw
from tests.server.harness import PATIENCE_S, Running, serving
from tests.server.phone.peer import (
    TWILIO_START,
    agent_of,
    eventually,
    loudest_hz,
    phone_call,
    wait_for_calls,
)
from tests.server.tone_engine import word_tone


async def test_an_agent_speaks_to_a_phone_and_learns_what_was_heard() -> None:
    async with serving() as server, phone_call(server) as phone, agent_of(server) as agent:
        started = await agent.until("call.started")
        assert (started["kind"], started["peer"]) == ("phone", "twilio")
        assert started["details"]["call"] == "CA1"
        assert (await agent.until("session.started"))["voice"] == "mid"
        sent_at = time.monotonic()
        await agent.send("input.text", text="one two three four five ")
        await agent.send("input.done")
        words = [(await agent.until("progress"))["text"] for _ in range(5)]
        done = await agent.until("session.done")
        heard_at = time.monotonic()
    assert words == ["one", "two", "three", "four", "five"]
    assert done["finish_reason"] == "stop"
    # A second of speech: the agent learns of its end when it was heard, not when it was sent.
    assert heard_at - sent_at >= 0.95
    assert {len(piece) for piece in phone.audio} == {160}
    assert len(phone.samples) == 8000
    for i, word in enumerate(words):
        middle = phone.samples[i * 1600 + 300 : i * 1600 + 1300]
        assert loudest_hz(middle, 8000) == pytest.approx(word_tone("mid", word), abs=8)


async def test_audio_runs_ahead_by_a_second_at_most() -> None:
    async with serving() as server, phone_call(server) as phone, agent_of(server) as agent:
        await agent.send("input.text", text="one two three four five six seven eight nine ten ")
        await agent.send("input.done")
        await agent.until("session.done")
    ahead = [(i + 1) * 0.02 - (at - phone.arrivals[0]) for i, at in enumerate(phone.arrivals)]
    assert len(ahead) == 100
    assert 0.8 < max(ahead) <= 1.05


async def test_barge_in_clears_the_phone_and_later_speech_is_whole() -> None:
    async with serving() as server, phone_call(server) as phone, agent_of(server) as agent:
        await agent.send("input.text", text="one two three four five six seven eight nine ten ")
        await agent.send("input.done")
        await agent.until("audio.played")
        await agent.send("input.cancel")
        done = await agent.until("session.done")
        assert done["cancelled"]
        cancelled_after = len(phone.audio)
        await eventually(lambda: "clear" in phone.log)
        clear_at = phone.log.index("clear")
        assert "media" not in phone.log[clear_at:]
        await agent.send("input.text", text="again ")
        await agent.send("input.done")
        assert (await agent.until("session.done"))["finish_reason"] == "stop"
    second = decode_ulaw(b"".join(phone.audio[cancelled_after:])) / 32768
    assert len(second) == 1600
    assert loudest_hz(second[300:1300], 8000) == pytest.approx(word_tone("mid", "again"), abs=8)


async def test_keys_and_the_callers_voice_reach_the_agent() -> None:
    time_s = np.arange(8000) / 8000
    tone = (0.5 * 32767 * np.sin(2 * np.pi * 440 * time_s)).astype(np.int16)
    async with serving() as server, phone_call(server) as phone, agent_of(server) as agent:
        await agent.send("call.audio", enabled=True)
        await agent.send("call.audio")  # refused, and harmless
        await phone.send({"event": "dtmf", "streamSid": "MZ1", "dtmf": {"digit": "5"}})
        with pytest.raises(AssertionError, match="enabled"):
            await agent.until("call.dtmf")
        assert (await agent.until("call.dtmf"))["digit"] == "5"
        for start in range(0, 8000, 160):
            payload = base64.b64encode(encode_ulaw(tone[start : start + 160])).decode()
            media = {"track": "inbound", "chunk": "1", "timestamp": "20", "payload": payload}
            await phone.send({"event": "media", "streamSid": "MZ1", "media": media})
        level = await agent.until("caller.level")
        assert level["dbfs"] == pytest.approx(-9, abs=1.5)
        await phone.send({"event": "stop", "streamSid": "MZ1", "stop": {"callSid": "CA1"}})
        ended = await agent.until("call.ended")
        assert ended["reason"] == "the caller hung up"
        samples = np.frombuffer(b"".join(agent.audio), "<i2") / 32768
        assert len(samples) == pytest.approx(16000, abs=100)
        assert loudest_hz(samples[2000:10000], 16000) == pytest.approx(440, abs=4)
        assert await wait_for_calls(server, 0) == []


async def test_an_agent_hangs_up() -> None:
    async with serving() as server, phone_call(server) as phone, agent_of(server) as agent:
        await agent.send("call.hang_up")
        assert (await agent.until("call.ended"))["reason"] == "hung up by its agent"
        await asyncio.wait_for(phone.socket.wait_closed(), PATIENCE_S)
        assert phone.socket.close_code == 1000


async def test_calls_are_listed_and_ended_over_http() -> None:
    async with (
        serving() as server,
        phone_call(server) as phone,
        httpx.AsyncClient(trust_env=False, base_url=server.url) as http,
    ):
        (call,) = await wait_for_calls(server, 1)
        assert (call["peer"], call["format"], call["sample_rate"]) == ("twilio", "ulaw", 8000)
        assert 'antiphon_calls{peer="twilio"} 1.0' in (await http.get("/metrics")).text
        assert (await http.delete("/v1/calls/nobody")).status_code == 404
        assert (await http.delete(f"/v1/calls/{call['id']}")).status_code == 204
        await asyncio.wait_for(phone.socket.wait_closed(), PATIENCE_S)
        assert await wait_for_calls(server, 0) == []
        assert 'antiphon_calls{peer="twilio"} 0.0' in (await http.get("/metrics")).text


async def test_a_call_without_an_agent_is_greeted() -> None:
    async with (
        serving({"calls.greeting": "hello caller"}) as server,
        phone_call(server) as phone,
    ):
        await eventually(lambda: sum(map(len, phone.audio)) >= 3200)
        assert loudest_hz(phone.samples[300:1300], 8000) == pytest.approx(
            word_tone("mid", "hello"), abs=8
        )


BAD: list[tuple[list[str | bytes], int]] = [
    (["not json"], 1007),
    (["[1]"], 1007),
    ([b"\0\1"], 1007),
    ([json.dumps({"event": "media", "media": {"payload": "AAAA"}})], 1008),
    ([json.dumps({"event": "start", "start": {"mediaFormat": {"encoding": "opus"}}})], 1008),
    ([json.dumps(TWILIO_START), json.dumps(TWILIO_START)], 1008),
    # What Python's own JSON reader lets through: numbers that are none, half characters.
    ([json.dumps(TWILIO_START).replace("8000", "1e999")], 1007),
    ([json.dumps(TWILIO_START).replace("8000", "Infinity")], 1007),
    ([json.dumps(TWILIO_START).replace("MZ1", "\\ud800")], 1007),
    ([json.dumps(TWILIO_START), json.dumps({"event": "dtmf", "dtmf": {"digit": "\ud800"}})], 1007),
    ([json.dumps(TWILIO_START), "x" * 200_000], 1009),
    ([json.dumps(TWILIO_START), json.dumps({"event": "media"})], 1007),
    ([json.dumps(TWILIO_START), json.dumps({"event": "media", "media": {"payload": "#"}})], 1007),
    (
        [
            json.dumps(TWILIO_START),
            json.dumps({"event": "media", "media": {"payload": "A" * 90_000}}),
        ],
        1007,
    ),
]


@pytest.mark.parametrize(("messages", "code"), BAD)
async def test_wrong_messages_end_the_call_and_no_other(
    messages: list[str | bytes], code: int
) -> None:
    async with serving() as server, phone_call(server) as good, agent_of(server) as agent:
        await agent.send("input.text", text="one two three four ")
        await agent.send("input.done")
        async with connect(f"{server.url.replace('http', 'ws')}/v1/twilio", proxy=None) as peer:
            for message in messages:
                await peer.send(message)
            await asyncio.wait_for(peer.wait_closed(), PATIENCE_S)
            assert peer.close_code == code
        assert (await agent.until("session.done"))["finish_reason"] == "stop"
        assert len(good.samples) == 6400
        await wait_for_calls(server, 1)
        assert server.engine.counters.open_now == 0


async def test_audio_after_stop_is_not_listened_to() -> None:
    async with serving() as server, phone_call(server) as phone:
        await wait_for_calls(server, 1)
        await phone.send({"event": "stop"})
        await wait_for_calls(server, 0)
        await asyncio.wait_for(phone.socket.wait_closed(), PATIENCE_S)
        with pytest.raises(ConnectionClosed):
            await phone.send({"event": "media", "media": {"payload": "AAAA"}})


async def test_a_phone_that_stops_reading_ends_only_its_own_call() -> None:
    limits = {
        "server.limits.slow_reader_s": 0.5,
        "server.limits.write_buffer_bytes": 4096,
        "server.limits.text_queue_chars": 1_000_000,
    }
    async with serving(limits) as server, phone_call(server), agent_of(server) as good:
        reader, writer = await deaf_phone(server)
        await wait_for_calls(server, 2)
        async with agent_of(server, "CA2", calls=2) as agent:
            await agent.send("input.text", text="word " * 3_000)
            await agent.send("input.done")
            await good.send("input.text", text="one ")
            await good.send("input.done")
            assert (await good.until("session.done"))["finish_reason"] == "stop"
            # What runs ahead of the ear is bounded, so the buffers fill only as time passes.
            assert (await agent.until("call.ended"))["reason"] == "slow_reader"
        writer.close()
        del reader
        (left,) = await wait_for_calls(server, 1)
        assert left["details"]["call"] == "CA1"


async def deaf_phone(server: Running) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A WebSocket by hand that sends a start and never reads."""
    host, port = server.url.removeprefix("http://").split(":")
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    sock.connect((host, int(port)))
    reader, writer = await asyncio.open_connection(sock=sock, limit=1024)
    writer.write(
        f"GET /v1/twilio HTTP/1.1\r\nHost: {host}:{port}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        "Sec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    await reader.readuntil(b"\r\n\r\n")
    start = json.dumps(TWILIO_START).replace("CA1", "CA2").encode()
    # RFC 6455, section 5.2: final text frame, masked with zeros, 16-bit length.
    writer.write(b"\x81\xfe" + len(start).to_bytes(2, "big") + bytes(4) + start)
    await writer.drain()
    return reader, writer
