"""A scripted phone provider, and an agent on the control leg."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
from websockets.asyncio.client import ClientConnection, connect

from antiphon.server.audio.g711 import decode_ulaw
from tests.server.harness import PATIENCE_S, Running

TWILIO_START = {
    "event": "start",
    "sequenceNumber": "1",
    "streamSid": "MZ1",
    "start": {
        "streamSid": "MZ1",
        "accountSid": "AC1",
        "callSid": "CA1",
        "tracks": ["inbound"],
        "customParameters": {"voice": "mid"},
        "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
    },
}


def twilio_start(voice: str) -> dict[str, Any]:
    """The start message of a call that asks for a voice."""
    start: dict[str, Any] = json.loads(json.dumps(TWILIO_START))
    start["start"]["customParameters"]["voice"] = voice
    return start


@dataclass
class Phone:
    """A provider: takes audio, plays it at normal speed, and answers marks once it is there."""

    socket: ClientConnection
    speed: float = 1.0
    answers_marks: bool = True
    audio: list[bytes] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    dry_at: float = 0.0

    async def send(self, message: Mapping[str, Any]) -> None:
        await self.socket.send(json.dumps(message))

    async def run(self) -> None:
        """Receive until the server closes."""
        marks: list[asyncio.Task[None]] = []
        try:
            async for raw in self.socket:
                await self._take(json.loads(raw), marks)
        finally:
            for mark in marks:
                mark.cancel()

    async def _take(self, message: dict[str, Any], marks: list[asyncio.Task[None]]) -> None:
        self.log.append(message["event"])
        now = time.monotonic()
        match message["event"]:
            case "media":
                assert message["streamSid"] == "MZ1"
                payload = base64.b64decode(message["media"]["payload"], validate=True)
                self.audio.append(payload)
                self.arrivals.append(now)
                self.dry_at = max(self.dry_at, now) + len(payload) / 8000 / self.speed
            case "mark" if self.answers_marks:
                marks.append(asyncio.create_task(self._played(message, self.dry_at)))
            case "clear":
                self.dry_at = now
                for mark in marks:
                    mark.cancel()

    async def _played(self, message: dict[str, Any], at: float) -> None:
        await asyncio.sleep(at - time.monotonic())
        await self.send(message)

    @property
    def samples(self) -> np.ndarray:
        return decode_ulaw(b"".join(self.audio)) / 32768


@asynccontextmanager
async def phone_call(
    server: Running, *, voice: str = "mid", **options: Any
) -> AsyncIterator[Phone]:
    url = server.url.replace("http", "ws", 1) + "/v1/twilio"
    async with connect(url, proxy=None) as peer:
        phone = Phone(peer, **options)
        await phone.send({"event": "connected", "protocol": "Call", "version": "1.0.0"})
        await phone.send(twilio_start(voice))
        running = asyncio.create_task(phone.run())
        try:
            yield phone
        finally:
            running.cancel()


@dataclass
class Agent:
    """An agent on the control leg."""

    socket: ClientConnection
    audio: list[bytes] = field(default_factory=list)

    async def send(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def until(self, kind: str) -> dict[str, Any]:
        """The next event of this type; what comes before is passed over."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                message = await self.socket.recv()
                if isinstance(message, bytes):
                    self.audio.append(message)
                    continue
                event: dict[str, Any] = json.loads(message)
                if event["type"] == kind:
                    return event
                assert event["type"] != "error", event


@asynccontextmanager
async def agent_of(server: Running, call: str = "CA1", calls: int = 1) -> AsyncIterator[Agent]:
    await wait_for_calls(server, calls)
    url = f"{server.url.replace('http', 'ws', 1)}/v1/calls/{call}/control"
    async with connect(url, proxy=None) as peer:
        yield Agent(peer)


async def wait_for_calls(server: Running, count: int) -> list[dict[str, Any]]:
    async with httpx.AsyncClient(trust_env=False) as http, asyncio.timeout(PATIENCE_S):
        while True:
            calls = (await http.get(f"{server.url}/v1/calls")).json()["calls"]
            if len(calls) == count:
                return list(calls)
            await asyncio.sleep(0.02)


def loudest_hz(samples: np.ndarray, rate: int) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(spectrum.argmax() * rate / len(samples))


async def eventually(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not check():  # noqa: ASYNC110 - what is checked is the peer's, not ours to signal
            await asyncio.sleep(0.01)
