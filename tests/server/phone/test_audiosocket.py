"""AudioSocket: a scripted Asterisk that sends the same bytes, and a real one where there is one."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest

from antiphon.server.phone.audiosocket import DTMF, HANG_UP, UUID, frame, read_frame
from tests.server.harness import PATIENCE_S, Running, serving
from tests.server.phone.peer import agent_of, loudest_hz, wait_for_calls
from tests.server.tone_engine import word_tone

CALL = uuid.UUID("11111111-2222-3333-4444-555555555555")
OPEN = {"calls.audiosocket_port": 0}


class Line:
    """Asterisk's end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.arrivals: list[float] = []

    def send(self, kind: int, payload: bytes = b"") -> None:
        self.writer.write(struct.pack("!BH", kind, len(payload)) + payload)

    async def receive(self) -> tuple[int, bytes]:
        async with asyncio.timeout(PATIENCE_S):
            got = await read_frame(self.reader)
        self.arrivals.append(time.monotonic())
        return got

    async def hear(self, frames: int) -> np.ndarray:
        """The next frames from the first that is not silence."""
        parts: list[bytes] = []
        while len(parts) < frames:
            _, payload = await self.receive()
            if parts or payload.strip(b"\0"):
                parts.append(payload)
        return np.frombuffer(b"".join(parts), "<i2") / 32768

    async def closed(self) -> bool:
        """Read to the end; whether a hang-up frame was the last."""
        last = -1
        try:
            while True:
                last, _ = await self.receive()
        except (asyncio.IncompleteReadError, ConnectionError):
            return last == HANG_UP


@asynccontextmanager
async def line(server: Running) -> AsyncIterator[Line]:
    port = server.audiosocket_port
    assert port is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield Line(reader, writer)
    finally:
        writer.close()


@pytest.mark.parametrize(("kind", "rate"), [(0x10, 8000), (0x12, 16000), (0x16, 48000)])
async def test_a_call_at_every_rate_is_paced_from_beginning_to_end(kind: int, rate: int) -> None:
    async with serving(OPEN) as server, line(server) as asterisk:
        asterisk.send(UUID, CALL.bytes)
        asterisk.send(kind, bytes(rate // 25))
        async with agent_of(server, str(CALL)) as agent:
            silence = [await asterisk.receive() for _ in range(15)]
            assert {(k, len(payload)) for k, payload in silence} == {(kind, rate // 25)}
            asterisk.send(DTMF, b"5")
            assert (await agent.until("call.dtmf"))["digit"] == "5"
            await agent.send("input.text", text="one two ")
            await agent.send("input.done")
            heard = await asterisk.hear(20)
            for i, word in enumerate(("one", "two")):
                middle = heard[round((i * 0.2 + 0.04) * rate) : round((i * 0.2 + 0.16) * rate)]
                assert loudest_hz(middle, rate) == pytest.approx(word_tone("low", word), abs=9)
            assert (await agent.until("session.done"))["finish_reason"] == "stop"
            for _ in range(10):
                await asterisk.receive()
        steps = np.array([b - a for a, b in itertools.pairwise(asterisk.arrivals)])
        seconds = asterisk.arrivals[-1] - asterisk.arrivals[0]
        # Never faster than the ear, silence included; a busy machine may bunch single frames.
        assert seconds >= 0.02 * len(steps) - 0.11
        asterisk.send(HANG_UP)
        await wait_for_calls(server, 0)


async def test_a_caller_who_sends_nothing_is_spoken_to_at_8_khz() -> None:
    async with serving({**OPEN, "calls.greeting": "hello"}) as server, line(server) as asterisk:
        asterisk.send(UUID, CALL.bytes)
        began = time.monotonic()
        heard = await asterisk.hear(10)
        assert time.monotonic() - began < 2.0
        assert len(heard) == 1600
        assert loudest_hz(heard[300:1300], 8000) == pytest.approx(word_tone("low", "hello"), abs=8)


async def test_barge_in_stops_within_a_frame_or_two() -> None:
    async with serving(OPEN) as server, line(server) as asterisk:
        asterisk.send(UUID, CALL.bytes)
        asterisk.send(0x10, bytes(320))
        async with agent_of(server, str(CALL)) as agent:
            await agent.send("input.text", text="one two three four five six ")
            await agent.send("input.done")
            await asterisk.hear(5)
            await agent.send("input.cancel")
            await agent.until("session.done")
            payloads = [(await asterisk.receive())[1] for _ in range(15)]
            assert not any(payload.strip(b"\0") for payload in payloads[-10:])


WRONG: list[list[bytes]] = [
    [frame(0x10, bytes(320))],
    [frame(UUID, b"short")],
    [frame(UUID, CALL.bytes), frame(0x10, b"")],
    [frame(UUID, CALL.bytes), frame(0x10, bytes(321))],
    [frame(UUID, CALL.bytes), frame(0x42, b"x")],
    [frame(UUID, CALL.bytes), frame(0x18, bytes(7680))],
    [frame(UUID, CALL.bytes), frame(0x10, bytes(320)), frame(0x12, bytes(640))],
    [frame(UUID, CALL.bytes), frame(0x10, bytes(320)), frame(UUID, CALL.bytes)],
    [frame(UUID, CALL.bytes), frame(0x10, bytes(320)), frame(DTMF, b"55")],
    [frame(UUID, CALL.bytes), frame(0x10, bytes(320)), frame(0xFF, b"\1")],
]


@pytest.mark.parametrize("frames", WRONG)
async def test_wrong_frames_end_the_call_and_no_other(frames: list[bytes]) -> None:
    async with serving(OPEN) as server, line(server) as good, line(server) as bad:
        good.send(UUID, uuid.uuid4().bytes)
        good.send(0x10, bytes(320))
        await wait_for_calls(server, 1)
        for each in frames:
            bad.writer.write(each)
        assert await bad.closed()
        await wait_for_calls(server, 1)
        await good.receive()


async def test_peers_that_go_away_at_any_moment_leave_nothing() -> None:
    async with serving(OPEN) as server:
        for sent in (b"", b"\1", frame(UUID, CALL.bytes), frame(UUID, CALL.bytes) + b"\x10\1"):
            async with line(server) as asterisk:
                asterisk.writer.write(sent)
                await asterisk.writer.drain()
        await wait_for_calls(server, 0)


async def test_an_asterisk_that_stops_reading_ends_only_its_own_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("antiphon.server.phone.audiosocket._SLOW_READER_S", 0.5)
    async with serving(OPEN) as server, line(server) as good:
        good.send(UUID, uuid.uuid4().bytes)
        good.send(0x10, bytes(320))
        await wait_for_calls(server, 1)
        assert server.audiosocket_port is not None
        deaf = socket.socket()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        deaf.connect(("127.0.0.1", server.audiosocket_port))
        deaf.sendall(frame(UUID, CALL.bytes) + frame(0x16, bytes(1920)))
        async with agent_of(server, str(CALL), calls=2) as agent:
            assert (await agent.until("call.ended"))["reason"] == "slow_reader"
        await wait_for_calls(server, 1)
        deaf.close()
        await good.receive()


async def test_more_calls_than_the_limit_are_hung_up_at_once() -> None:
    one = {**OPEN, "calls.max_calls": 1}
    async with serving(one) as server, line(server) as first, line(server) as second:
        first.send(UUID, CALL.bytes)
        first.send(0x10, bytes(320))
        await wait_for_calls(server, 1)
        second.send(UUID, uuid.uuid4().bytes)
        second.send(0x10, bytes(320))
        assert await second.closed()
        await first.receive()


async def test_the_server_stops_and_hangs_up() -> None:
    async with serving(OPEN) as server, line(server) as asterisk:
        asterisk.send(UUID, CALL.bytes)
        asterisk.send(0x10, bytes(320))
        await wait_for_calls(server, 1)
        await server.calls.close()
        assert await asterisk.closed()


async def test_connections_that_never_say_their_name_are_bounded() -> None:
    async with serving({**OPEN, "calls.max_calls": 4}) as server:
        port = server.audiosocket_port
        assert port is not None
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        async with line(server) as one_more:
            assert await one_more.closed()
        for _, writer in silent:
            writer.close()
        # Their places are free again once they have gone.
        async with asyncio.timeout(PATIENCE_S):
            while True:
                async with line(server) as asterisk:
                    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                        asterisk.send(UUID, CALL.bytes)
                        asterisk.send(0x10, bytes(320))
                        if (await asterisk.receive())[0] != HANG_UP:
                            break
        await wait_for_calls(server, 0)


async def test_a_flood_of_audio_is_read_no_faster_than_a_voice_speaks() -> None:
    async with serving(OPEN) as server, line(server) as good, line(server) as bad:
        good.send(UUID, uuid.uuid4().bytes)
        good.send(0x10, bytes(320))
        await wait_for_calls(server, 1)
        bad.send(UUID, CALL.bytes)
        sent = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                while True:
                    bad.send(0x10, bytes(16_000))
                    sent += 1
                    await bad.writer.drain()
        # Ten seconds at once, one a frame of ours from then on, and what the kernel holds.
        assert 10 < sent < 1_000
        calls = await wait_for_calls(server, 2)
        flooded = next(each for each in calls if each["details"]["uuid"] == str(CALL))
        assert 10 <= flooded["caller_s"] < 20
        await good.receive()
        bad.writer.transport.abort()
        await wait_for_calls(server, 1)
