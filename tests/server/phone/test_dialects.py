"""The other providers' languages: each hears a turn in its own words, with real bytes."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect

from antiphon.engine.errors import InvalidRequest
from antiphon.server.audio.g711 import decode_alaw, decode_ulaw
from antiphon.server.phone.asterisk import AsteriskDialect
from antiphon.server.phone.events import Flow, Heard, Ignored, Media, Pressed, Started
from antiphon.server.phone.json_dialect import WORDINGS, JsonDialect
from antiphon.server.phone.vonage import VonageDialect
from tests.server.harness import PATIENCE_S, serving
from tests.server.phone.peer import Agent, agent_of, eventually, loudest_hz, wait_for_calls
from tests.server.tone_engine import word_tone


def pcm(data: bytes) -> np.ndarray:
    return np.frombuffer(data, "<i2") / 32768


def g711(decode: Callable[[bytes], np.ndarray]) -> Callable[[bytes], np.ndarray]:
    return lambda data: decode(data) / 32768


@dataclass
class Provider:
    """What a provider sends and how it wants to be answered."""

    path: str
    start: dict[str, Any]
    rate: int
    decode: Callable[[bytes], np.ndarray]
    media: Callable[[dict[str, Any]], str | None]
    mark: Callable[[dict[str, Any]], dict[str, Any] | None]
    is_clear: Callable[[dict[str, Any]], bool]
    dtmf: dict[str, Any]
    message_bytes: int


TELNYX = Provider(
    path="/v1/telnyx",
    start={
        "event": "start",
        "sequence_number": "1",
        "stream_id": "S1",
        "start": {
            "call_control_id": "C1",
            "media_format": {"encoding": "PCMA", "sample_rate": 8000, "channels": 1},
        },
    },
    rate=8000,
    decode=g711(decode_alaw),
    media=lambda m: m["media"]["payload"] if m["event"] == "media" else None,
    mark=lambda m: m if m["event"] == "mark" else None,
    is_clear=lambda m: m == {"event": "clear"},
    dtmf={"event": "dtmf", "stream_id": "S1", "dtmf": {"digit": "7"}},
    message_bytes=160,
)
PLIVO = Provider(
    path="/v1/plivo",
    start={
        "event": "start",
        "sequenceNumber": 0,
        "start": {
            "callId": "C1",
            "streamId": "S1",
            "accountId": "A1",
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000},
        },
    },
    rate=8000,
    decode=g711(decode_ulaw),
    media=lambda m: (
        m["media"]["payload"]
        if m["event"] == "playAudio"
        and (m["media"]["contentType"], m["media"]["sampleRate"]) == ("audio/x-mulaw", 8000)
        else None
    ),
    mark=lambda m: (
        {"event": "playedStream", "streamId": m["streamId"], "name": m["name"]}
        if m["event"] == "checkpoint"
        else None
    ),
    is_clear=lambda m: m == {"event": "clearAudio", "streamId": "S1"},
    dtmf={"event": "dtmf", "streamId": "S1", "dtmf": {"digit": "7", "track": "inbound"}},
    message_bytes=160,
)
EXOTEL = Provider(
    path="/v1/exotel",
    start={
        "event": "start",
        "sequence_number": 1,
        "stream_sid": "S1",
        "start": {
            "stream_sid": "S1",
            "call_sid": "C1",
            "media_format": {"encoding": "base64", "sample_rate": "8000", "bit_rate": "128kbps"},
        },
    },
    rate=8000,
    decode=pcm,
    media=lambda m: (
        m["media"]["payload"] if m["event"] == "media" and m["stream_sid"] == "S1" else None
    ),
    mark=lambda m: m if m["event"] == "mark" else None,
    is_clear=lambda m: m == {"event": "clear", "stream_sid": "S1"},
    dtmf={"event": "dtmf", "stream_sid": "S1", "dtmf": {"digit": "7", "duration": 100}},
    message_bytes=1600,
)
PROVIDERS = [TELNYX, PLIVO, EXOTEL]


@dataclass
class Peer:
    socket: ClientConnection
    provider: Provider
    audio: list[bytes] = field(default_factory=list)
    cleared: bool = False
    dry_at: float = 0.0

    async def run(self) -> None:
        marks: set[asyncio.Task[None]] = set()
        async for raw in self.socket:
            message = json.loads(raw)
            payload = self.provider.media(message)
            if payload is not None:
                data = base64.b64decode(payload)
                self.audio.append(data)
                now = time.monotonic()
                self.dry_at = max(self.dry_at, now) + len(self.provider.decode(data)) / 8000
            elif (answer := self.provider.mark(message)) is not None:
                marks.add(asyncio.create_task(self._later(answer, self.dry_at)))
            elif self.provider.is_clear(message):
                self.cleared = True
            else:
                raise AssertionError(message)

    async def _later(self, answer: dict[str, Any], at: float) -> None:
        await asyncio.sleep(at - time.monotonic())
        await self.socket.send(json.dumps(answer))


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda p: p.path)
async def test_a_turn_a_key_and_a_barge_in(provider: Provider) -> None:
    async with serving() as server:
        url = server.url.replace("http", "ws", 1) + provider.path
        async with connect(url, proxy=None) as socket:
            peer = Peer(socket, provider)
            await socket.send(json.dumps({"event": "connected"}))
            await socket.send(json.dumps(provider.start))
            running = asyncio.create_task(peer.run())
            async with agent_of(server, "C1") as agent:
                await agent.send("input.text", text="one two three ")
                await agent.send("input.done")
                texts = [(await agent.until("progress"))["text"] for _ in range(3)]
                done = await agent.until("session.done")
                assert (texts, done["finish_reason"]) == (["one", "two", "three"], "stop")
                assert {len(piece) for piece in peer.audio} == {provider.message_bytes}
                heard = provider.decode(b"".join(peer.audio))
                assert 4800 <= len(heard) < 4800 + provider.rate // 10
                for i, word in enumerate(texts):
                    middle = heard[i * 1600 + 300 : i * 1600 + 1300]
                    assert loudest_hz(middle, 8000) == pytest.approx(word_tone("low", word), abs=8)
                await socket.send(json.dumps(provider.dtmf))
                assert (await agent.until("call.dtmf"))["digit"] == "7"
                await agent.send("input.text", text="four five six seven eight nine ")
                await agent.send("input.done")
                await agent.until("audio.played")
                await agent.send("input.cancel")
                assert (await agent.until("session.done"))["cancelled"]
                await eventually(lambda: peer.cleared)
            assert not running.done()
            await socket.send(json.dumps({"event": "stop"}))
            await wait_for_calls(server, 0)


async def test_vonage_hears_binary_audio_by_our_clock() -> None:
    async with serving() as server:
        url = server.url.replace("http", "ws", 1) + "/v1/vonage"
        async with connect(url, proxy=None) as socket:
            hello = {
                "event": "websocket:connected",
                "content-type": "audio/l16;rate=16000",
                "uuid": "C1",
                "voice": "high",
            }
            await socket.send(json.dumps(hello))
            async with agent_of(server, "C1") as agent:
                began = time.monotonic()
                await agent.send("input.text", text="one two three ")
                await agent.send("input.done")
                frames = [await socket.recv() for _ in range(30)]
                assert time.monotonic() - began >= 0.6 - 0.2 - 0.05
                assert (await agent.until("session.done"))["finish_reason"] == "stop"
                assert time.monotonic() - began >= 0.55
                assert {len(each) for each in frames} == {640}
                heard = pcm(b"".join(frames))  # type: ignore[arg-type]
                assert loudest_hz(heard[600:2600], 16000) == pytest.approx(
                    word_tone("high", "one"), abs=10
                )
                await socket.send(json.dumps({"event": "websocket:dtmf", "digit": "3"}))
                assert (await agent.until("call.dtmf"))["digit"] == "3"
                await agent.send("input.text", text="four five six seven ")
                await agent.send("input.done")
                await socket.recv()
                await agent.send("input.cancel")
                async with asyncio.timeout(PATIENCE_S):
                    while isinstance(message := await socket.recv(), bytes):
                        pass
                assert json.loads(message) == {"action": "clear"}


async def test_half_a_sample_is_refused() -> None:
    async with serving() as server:
        url = server.url.replace("http", "ws", 1) + "/v1/vonage"
        async with connect(url, proxy=None) as socket:
            hello = {"event": "websocket:connected", "content-type": "audio/l16;rate=8000"}
            await socket.send(json.dumps(hello))
            await wait_for_calls(server, 1)
            await socket.send(b"\0" * 321)
            await asyncio.wait_for(socket.wait_closed(), PATIENCE_S)
            assert socket.close_code == 1008
        assert await wait_for_calls(server, 0) == []


def test_asterisk_is_understood_in_json_and_in_words() -> None:
    start = {
        "event": "MEDIA_START",
        "connection_id": "c1",
        "channel": "WebSocket/x",
        "channel_id": "1",
        "format": "slin16",
        "optimal_frame_size": 640,
        "ptime": 20,
        "channel_variables": {"VOICE": "mid"},
    }
    words = "MEDIA_START connection_id:c1 channel:WebSocket/x format:slin16 optimal_frame_size:640"
    for message, parameters in ((json.dumps(start), {"voice": "mid"}), (words, {})):
        dialect = AsteriskDialect()
        event = dialect.read(message)
        assert isinstance(event, Started)
        assert (event.audio, event.sample_rate, event.alias) == ("pcm", 16000, "c1")
        assert event.parameters == parameters
        as_json = message.startswith("{")
        assert dialect.clear() == ('{"command":"FLUSH_MEDIA"}' if as_json else "FLUSH_MEDIA")
        mark = '{"command":"MARK_MEDIA","correlation_id":"m1"}'
        assert dialect.mark("m1") == (mark if as_json else "MARK_MEDIA m1")
        assert len(dialect.mark("m999999999")) <= 128
    dialect = AsteriskDialect()
    assert dialect.read('{"event":"DTMF_END","digit":"5"}') == Pressed("5")
    assert dialect.read('{"event":"MEDIA_XOFF"}') == Flow(room=False)
    assert dialect.read('{"event":"MEDIA_XON"}') == Flow(room=True)
    assert dialect.read('{"event":"STATUS"}') == Ignored()
    assert dialect.read('{"event":"MEDIA_MARK_PROCESSED","correlation_id":"m1"}') == Heard("m1")
    assert dialect.read("DTMF_END digit:5") == Pressed("5")
    assert dialect.read(b"\0\0") == Media(b"\0\0")


@pytest.mark.parametrize(
    "message",
    [
        "",
        "{",
        '{"event":"MEDIA_START","format":"opus"}',
        "MEDIA_START format:g729",
    ],
)
def test_what_asterisk_would_not_say_is_refused(message: str) -> None:
    with pytest.raises(InvalidRequest):
        AsteriskDialect().read(message)


@pytest.mark.parametrize("name", WORDINGS)
@pytest.mark.parametrize(
    "message", ["", "null", "{", "[]", b"\0", "[" * 100_000, '{"event":"media"}']
)
def test_no_provider_gets_nonsense_past_us(name: str, message: str | bytes) -> None:
    with pytest.raises(InvalidRequest):
        JsonDialect(WORDINGS[name]).read(message)


@pytest.mark.parametrize("name", WORDINGS)
def test_events_that_are_new_are_ignored(name: str) -> None:
    dialect = JsonDialect(WORDINGS[name])
    assert dialect.read('{"event":"connected"}') == Ignored()
    assert dialect.read('{"event":"somethingNew","x":1}') == Ignored()
    assert dialect.read("{}") == Ignored()


def test_vonage_needs_its_content_type() -> None:
    with pytest.raises(InvalidRequest):
        VonageDialect().read('{"event":"websocket:connected","content-type":"audio/opus"}')
    with pytest.raises(InvalidRequest):
        VonageDialect().read("x")


class Asterisk:
    """chan_websocket: queues what it gets, plays it at normal speed, answers marks in order."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.commands: list[str] = []
        self.audio = b""
        self.dry_at = 0.0
        self.marks: list[asyncio.Task[None]] = []
        self.buffering = False

    async def run(self) -> None:
        async for message in self.socket:
            now = time.monotonic()
            if isinstance(message, bytes):
                if not self.buffering:
                    message = message[: len(message) // 640 * 640]
                self.audio += message
                self.dry_at = max(self.dry_at, now) + len(message) / 32000
                continue
            assert len(message) <= 128
            body = json.loads(message)
            self.commands.append(body["command"])
            match body["command"]:
                case "START_MEDIA_BUFFERING":
                    self.buffering = True
                case "MARK_MEDIA":
                    name = body["correlation_id"]
                    self.marks.append(asyncio.create_task(self._mark(name, self.dry_at)))
                case "FLUSH_MEDIA":
                    self.buffering = False
                    self.dry_at = now
                    for mark in self.marks:
                        mark.cancel()
                case "HANGUP":
                    await self.socket.close()

    async def _mark(self, name: str, at: float) -> None:
        await asyncio.sleep(at - time.monotonic())
        answer = {"event": "MEDIA_MARK_PROCESSED", "channel_id": "1", "correlation_id": name}
        await self.socket.send(json.dumps(answer))


async def test_asterisk_over_its_websocket() -> None:
    start = {"event": "MEDIA_START", "connection_id": "C1", "format": "slin16", "ptime": 20}
    async with serving({"server.api_keys": ["a-long-key"]}) as server:
        url = server.url.replace("http", "ws", 1) + "/v1/asterisk?api_key=a-long-key"
        async with connect(url, proxy=None, subprotocols=["media"]) as socket:  # type: ignore[list-item]
            assert socket.subprotocol == "media"
            peer = Asterisk(socket)
            running = asyncio.create_task(peer.run())
            await socket.send(json.dumps(start))
            control = (
                f"{server.url.replace('http', 'ws', 1)}/v1/calls/C1/control?api_key=a-long-key"
            )
            await eventually(lambda: "START_MEDIA_BUFFERING" in peer.commands)
            async with connect(control, proxy=None) as agent_socket:
                agent = Agent(agent_socket)
                await agent.send("input.text", text="one two ")
                await agent.send("input.done")
                assert (await agent.until("session.done"))["finish_reason"] == "stop"
                assert len(peer.audio) == 2 * 6400
                assert loudest_hz(pcm(peer.audio)[600:2600], 16000) == pytest.approx(
                    word_tone("low", "one"), abs=10
                )
                # A full queue at Asterisk stops us, and room lets us go on.
                await socket.send('{"event":"MEDIA_XOFF"}')
                await agent.send("input.text", text="three ")
                await agent.send("input.done")
                await agent.send("call.barge_in", enabled=True)
                await asyncio.sleep(0.3)
                assert len(peer.audio) == 2 * 6400
                await socket.send('{"event":"MEDIA_XON"}')
                assert (await agent.until("session.done"))["finish_reason"] == "stop"
                assert len(peer.audio) == 3 * 6400
                await agent.send("input.text", text="four five six seven eight nine ten ")
                await agent.send("input.done")
                await agent.until("audio.played")
                await agent.send("input.cancel")
                assert (await agent.until("session.done"))["cancelled"]
                await eventually(lambda: "FLUSH_MEDIA" in peer.commands)
                await agent.send("call.hang_up")
                await agent.until("call.ended")
            await asyncio.wait_for(running, PATIENCE_S)
        assert peer.commands[:2] == ["ANSWER", "START_MEDIA_BUFFERING"]
        assert peer.commands[-1] == "HANGUP"
        after = peer.commands.index("FLUSH_MEDIA") + 1
        assert peer.commands[after] == "START_MEDIA_BUFFERING"
