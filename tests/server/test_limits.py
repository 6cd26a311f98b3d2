"""Everything is bounded: readers that stop, time, sessions, connections."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.server.harness import Running, eventually, serving, talking
from tests.server.tone_engine import WORD_SAMPLES

LONG = " ".join(f"word{i}" for i in range(1_000))


class RawClient:
    """A client that reads when told to, with a large receive buffer, and answers no ping."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, **message: object) -> None:
        data = json.dumps(message).encode()
        head = bytes([0x81, 0x80 | 126]) + struct.pack("!H", len(data)) + bytes(4)
        self._writer.write(head + data)

    async def rest(self) -> bytes:
        """Read on: everything until the server closes."""
        self._writer.transport.resume_reading()
        async with asyncio.timeout(20):
            try:
                return await self._reader.read(-1)
            except ConnectionResetError:
                return b""


@asynccontextmanager
async def raw_client(server: Running) -> AsyncIterator[RawClient]:
    """Connects and never reads on: the kernel alone takes what comes."""
    address = urlsplit(server.url)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_000_000)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, (address.hostname, address.port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=2**16)
    writer.write(
        b"GET /v1/audio/speech/stream HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
        b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    writer.transport.pause_reading()
    try:
        yield RawClient(reader, writer)
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("fmt", ["pcm", "ulaw", "opus_raw"])
async def test_a_reader_that_stops_pauses_its_own_synthesis(fmt: str) -> None:
    rate = 8_000 if fmt == "ulaw" else 24_000
    async with serving({"server.limits.slow_reader_s": 1.0}) as server:
        async with raw_client(server) as client:
            client.send(type="session.config", response_format=fmt, sample_rate=rate)
            client.send(type="input.text", text=LONG)
            await asyncio.sleep(0.6)
            made_s = server.engine.counters.words * WORD_SAMPLES / 24_000
            assert 1.5 < made_s < 3.0
            # The others do not notice.
            async with talking(server) as other:
                await other.configure()
                assert (await other.say("one two")).done["samples"] == 2 * WORD_SAMPLES
            before = server.engine.counters.words
            await asyncio.sleep(0.2)
            assert server.engine.counters.words == before
            # It is closed with a code, and what it held is free.
            await eventually(lambda: not server.engine.counters.open_now)
            rest = await client.rest()
        assert struct.pack("!BBH", 0x88, 2 + len("slow_reader"), 1008) in rest
        errors = server.house.metrics.registry.get_sample_value(
            "antiphon_errors_total", {"code": "slow_reader"}
        )
        assert errors == 1


async def test_a_reader_that_reads_slowly_hears_everything() -> None:
    text = " ".join(f"word{i}" for i in range(40))
    async with (
        serving({"server.limits.slow_reader_s": 1.0}) as server,
        talking(server, max_queue=2) as client,
    ):
        await client.configure(response_format="opus_raw")
        await client.send("input.text", text=text)
        await client.send("input.done")
        heard = 0
        while True:
            message = await client.receive()
            if isinstance(message, bytes):
                heard += 1
                await asyncio.sleep(0.004)
            elif message["type"] == "session.done":
                break
        assert message["samples"] == 40 * WORD_SAMPLES
        assert heard in (400, 401)


async def test_the_lead_over_a_listener_is_bounded() -> None:
    async with serving({"server.limits.audio_lead_s": 1.0}) as server, talking(server) as client:
        await client.configure()
        await client.send("input.text", text=LONG)
        await client.event("audio.start")
        reading = asyncio.create_task(client.hear())
        await asyncio.sleep(0.5)
        made_s = server.engine.counters.words * WORD_SAMPLES / 24_000
        assert 1.0 <= made_s <= 2.5
        await client.send("input.cancel")
        assert (await reading).done["cancelled"]


async def test_sessions_past_the_limit_are_refused_at_once() -> None:
    async with (
        serving({"server.limits.max_sessions": 1}) as server,
        talking(server) as first,
        talking(server) as second,
    ):
        server.engine.behaviour.seconds_per_word = 0.05
        await first.configure()
        await second.configure()
        await first.send("input.text", text="one two three four ")
        await first.event("audio.start")
        heard = await second.say("five")
        error = heard.of("error")[0]
        assert (error["code"], error["limit"]) == ("overloaded", 1)
        assert error["retry_after_s"] == 1.0
        assert heard.done["finish_reason"] == "error"
        await first.send("input.done")
        assert (await first.hear()).done["samples"] == 4 * WORD_SAMPLES
        assert (await second.say("five")).done["samples"] == WORD_SAMPLES


async def test_connections_past_the_limit_are_refused_at_the_handshake(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving({"server.limits.max_connections": 1}) as server, talking(server):
        with pytest.raises(InvalidStatus) as refused:
            async with talking(server):
                pass
        response = refused.value.response
        assert response.status_code == 429
        assert response.headers["Retry-After"] == "1"
        assert json.loads(response.body)["error"]["code"] == "overloaded"
        assert not caplog.records
    assert not caplog.records


@pytest.mark.parametrize(
    ("limit", "speak"),
    [("first_message_s", False), ("idle_s", True), ("connection_s", True)],
)
async def test_idle_connections_are_closed(limit: str, speak: bool) -> None:
    seconds = 1.0 if limit == "connection_s" else 0.2
    async with serving({f"server.limits.{limit}": seconds}) as server, talking(server) as client:
        if speak:
            await client.configure()
            await client.say("one")
        error = await client.event("error")
        assert (error["code"], error["field"]) == ("deadline_exceeded", limit)
        with pytest.raises(ConnectionClosed) as closed:
            await client.receive()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008


async def test_a_turn_that_waits_for_text_too_long_is_ended() -> None:
    async with serving({"server.limits.text_wait_s": 0.2}) as server, talking(server) as client:
        await client.configure()
        await client.send("input.text", text="one two ")
        heard = await client.hear()
        assert heard.of("error")[0]["field"] == "text_wait_s"
        assert heard.done["finish_reason"] == "error"
        await client.send("input.done")
        assert (await client.say("one")).done["samples"] == WORD_SAMPLES
        assert server.engine.counters.open_now == 0


async def test_draining_lets_turns_end_and_starts_none() -> None:
    async with serving() as server, talking(server) as busy, talking(server) as idle:
        server.engine.behaviour.seconds_per_word = 0.05
        await busy.configure()
        await idle.configure()
        await busy.send("input.text", text="one two three four ")
        await busy.event("audio.start")
        draining = asyncio.create_task(server.house.drain())
        with pytest.raises(ConnectionClosed) as closed:
            await idle.receive()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012
        with pytest.raises(InvalidStatus) as refused:
            async with talking(server):
                pass
        assert refused.value.response.status_code == 503
        await busy.send("input.done")
        assert (await busy.hear()).done["samples"] == 4 * WORD_SAMPLES
        with pytest.raises(ConnectionClosed) as closed:
            await busy.receive()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1012
        async with asyncio.timeout(5):
            await draining


async def test_draining_does_not_wait_longer_than_the_limit() -> None:
    async with serving({"server.limits.drain_s": 0.2}) as server, talking(server) as client:
        await client.configure()
        await client.send("input.text", text="one ")
        await client.event("audio.start")
        async with asyncio.timeout(5):
            draining = asyncio.create_task(server.house.drain())
            heard = await client.hear()
            await draining
        assert [error["code"] for error in heard.of("error")] == ["not_ready"]
        assert heard.done["finish_reason"] == "error"
        await eventually(lambda: server.house.resources.sessions.taken == 0)


async def test_a_model_that_is_being_restarted_takes_no_turn_and_says_when_to_ask_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving() as server, talking(server) as client:
        await client.configure()
        with monkeypatch.context() as away:
            away.setattr(server.engine, "ready", False)
            await client.send("input.text", text="one ")
            error = await client.event("error")
        assert (error["code"], error["retry_after_s"]) == ("not_ready", 1.0)
        await client.event("session.done")
        await client.send("input.done")
        await client.send("input.text", text="two ")
        await client.send("input.done")
        assert (await client.hear()).done["finish_reason"] == "stop"
