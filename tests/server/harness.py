"""Runs a server in the test's own event loop and talks to it as a client would."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from websockets.asyncio.client import ClientConnection, connect

from antiphon.engine.interface import Engine
from antiphon.engine.watermark.interface import Watermark
from antiphon.engine.watermark.marked import FloatSamples
from antiphon.engine.watermark.none import NoWatermark
from antiphon.server.calls.registry import Calls
from antiphon.server.config import Config, load_config
from antiphon.server.engines import EngineSet
from antiphon.server.house import House
from antiphon.server.run import running
from tests.server.tone_engine import ToneEngine

PATH = "/v1/audio/speech/stream"
PATIENCE_S = 20.0


def tone_config(overrides: Mapping[str, Any] | None = None) -> Config:
    return load_config(
        environment={},
        overrides={"server.port": 0, "watermark.name": "none", **(overrides or {})},
    )


@dataclass
class Running:
    url: str
    house: House
    engine: Any
    calls: Calls
    audiosocket_port: int | None

    @property
    def ws(self) -> str:
        return self.url.replace("http", "ws", 1) + PATH


@asynccontextmanager
async def serving(
    overrides: Mapping[str, Any] | None = None,
    *,
    engine: Engine | None = None,
    watermark: Watermark | None = None,
    voice: str | None = "low",
) -> AsyncIterator[Running]:
    """A running server with one engine, by default the tones."""
    mark = watermark or NoWatermark()
    chosen = engine or ToneEngine(mark)
    name = chosen.capabilities.model
    engines = EngineSet({name: chosen}, model=name, voice=voice, watermark=mark)
    async with running(tone_config(overrides), engines) as server:
        yield Running(server.url, server.house, chosen, server.calls, server.audiosocket_port)


@dataclass
class Heard:
    """One turn as a client receives it."""

    events: list[dict[str, Any]] = field(default_factory=list)
    messages: list[bytes] = field(default_factory=list)
    order: list[str] = field(default_factory=list)

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind]

    @property
    def done(self) -> dict[str, Any]:
        (event,) = self.of("session.done")
        return event

    @property
    def pcm(self) -> FloatSamples:
        return np.frombuffer(b"".join(self.messages), "<i2").astype(np.float32) / 32768


class Client:
    """A connection that says one thing a line."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def send(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def receive(self) -> dict[str, Any] | bytes:
        async with asyncio.timeout(PATIENCE_S):
            message = await self.socket.recv()
        return message if isinstance(message, bytes) else json.loads(message)

    async def event(self, kind: str) -> dict[str, Any]:
        """The next message, which must be of this type."""
        message = await self.receive()
        assert isinstance(message, dict), f"audio instead of {kind}"
        assert message["type"] == kind, message
        return message

    async def configure(self, **fields: Any) -> dict[str, Any]:
        await self.send("session.config", **fields)
        return await self.event("session.started")

    async def refused(self, message: str | bytes) -> dict[str, Any]:
        """Send a raw message that is answered with an error."""
        await self.socket.send(message)
        return await self.event("error")

    async def hear(self, context: str | None = None) -> Heard:
        """Everything up to the end of a turn."""
        heard = Heard()
        while True:
            message = await self.receive()
            if isinstance(message, bytes):
                heard.messages.append(message)
                heard.order.append("audio")
                continue
            heard.events.append(message)
            heard.order.append(message["type"])
            if message["type"] == "audio.chunk":
                heard.messages.append(base64.b64decode(message["audio_b64"]))
            if message["type"] == "session.done" and message.get("context_id") == context:
                return heard

    async def say(self, text: str, *, pieces: int = 1, **where: Any) -> Heard:
        """One whole turn."""
        size = max(1, -(-len(text) // pieces))
        for start in range(0, len(text), size):
            await self.send("input.text", text=text[start : start + size], **where)
        await self.send("input.done", **where)
        return await self.hear(where.get("context_id"))


@asynccontextmanager
async def talking(server: Running, **options: Any) -> AsyncIterator[Client]:
    async with connect(server.ws, proxy=None, **options) as socket:
        yield Client(socket)


async def eventually(condition: Callable[[], bool], within_s: float = 5.0) -> None:
    """Wait until something inside the server has come about."""
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 (the server has no event for it, and needs none)
            await asyncio.sleep(0.005)


def assert_same_sound(heard: FloatSamples, expected: FloatSamples) -> None:
    """Equal but for 16 bits and the silence that fills the last frame."""
    assert len(expected) <= len(heard) < len(expected) + 24_000 // 50
    assert np.abs(heard[: len(expected)] - expected).max() < 1.5 / 32768
    assert not heard[len(expected) :].any()
