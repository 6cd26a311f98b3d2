"""The client side of a turn, against a scripted peer on a real socket."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_websocket

from antiphon.engine.errors import InvalidRequest
from antiphon.server.cli.conversation import (
    ServerRefused,
    ServerUnreachable,
    pieces_of,
    speak,
    speech_url,
)

Script = Callable[[ServerConnection], Awaitable[None]]


@asynccontextmanager
async def peer(script: Script) -> AsyncIterator[str]:
    async with serve_websocket(script, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        yield f"http://127.0.0.1:{port}"


@given(st.text())
def test_pieces_join_to_the_text(text: str) -> None:
    assert "".join(pieces_of(text)) == text


def test_pieces_are_words() -> None:
    assert pieces_of("Hello  there, world.\n") == ["Hello  ", "there, ", "world.\n"]


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ("127.0.0.1:8765", "ws://127.0.0.1:8765/v1/audio/speech/stream"),
        ("http://h:1", "ws://h:1/v1/audio/speech/stream"),
        ("https://h/voice/", "wss://h/voice/v1/audio/speech/stream"),
        ("ws://h:1/v1/audio/speech/stream", "ws://h:1/v1/audio/speech/stream"),
    ],
)
def test_any_address_of_the_server_will_do(base: str, expected: str) -> None:
    assert speech_url(base) == expected


@pytest.mark.parametrize("base", ["ftp://h/", "http://", "file:///x"])
def test_other_addresses_are_refused(base: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        speech_url(base)
    assert caught.value.field == "url"


async def test_a_turn_is_sent_in_pieces_at_the_pace_asked_for() -> None:
    received: list[tuple[float, dict]] = []

    async def script(socket: ServerConnection) -> None:
        async for raw in socket:
            message = json.loads(raw)
            received.append((time.monotonic(), message))
            if message["type"] == "session.config":
                await socket.send(json.dumps({"type": "session.started", "voice": "v1"}))
            if message["type"] == "input.done":
                await socket.send(json.dumps({"type": "audio.start"}))
                await socket.send(b"\0\0" * 480)
                chunk = base64.b64encode(b"\1\0" * 240).decode()
                await socket.send(json.dumps({"type": "audio.chunk", "audio_b64": chunk}))
                await socket.send(json.dumps({"type": "progress", "text": "one"}))
                await socket.send(json.dumps({"type": "audio.done"}))
                await socket.send(json.dumps({"type": "session.done", "samples": 720}))

    heard: list[bytes] = []
    async with peer(script) as url:
        turn = await speak(
            url, "one two three", {"voice": "v1"}, words_per_second=50, on_audio=heard.append
        )
    messages = [message for _, message in received]
    assert messages[0] == {"type": "session.config", "voice": "v1"}
    assert [m["text"] for m in messages if m["type"] == "input.text"] == ["one ", "two ", "three"]
    assert messages[-1] == {"type": "input.done"}
    assert received[-1][0] - received[1][0] >= 0.035
    assert heard == turn.messages == [b"\0\0" * 480, b"\1\0" * 240]
    assert turn.started["voice"] == "v1"
    assert turn.done["samples"] == 720
    assert len(turn.progress) == 1
    assert turn.first_packet_ms is not None
    assert turn.first_packet_ms > 35


async def test_a_refusal_keeps_its_code_and_field() -> None:
    async def script(socket: ServerConnection) -> None:
        await socket.recv()
        error = {
            "type": "error",
            "code": "unknown_voice",
            "message": "No voice x.",
            "field": "voice",
        }
        await socket.send(json.dumps(error))
        await socket.wait_closed()

    async with peer(script) as url:
        with pytest.raises(ServerRefused, match="No voice x") as caught:
            await speak(url, "one two", {}, words_per_second=1)
    assert (caught.value.code, caught.value.field) == ("unknown_voice", "voice")


@pytest.mark.parametrize("code", [1000, 1011])
async def test_a_connection_that_ends_early_is_an_error(code: int) -> None:
    async def script(socket: ServerConnection) -> None:
        await socket.recv()
        await socket.close(code)

    async with peer(script) as url:
        with pytest.raises(ServerUnreachable, match="closed the connection"):
            await speak(url, "one two three", {}, words_per_second=0.5)


async def test_nobody_there() -> None:
    server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    with pytest.raises(ServerUnreachable, match="No server answers"):
        await speak(f"127.0.0.1:{port}", "one", {})
