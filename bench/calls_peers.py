"""Peers of the calls benchmark: what hears a call at each door, and the agent that speaks on it."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
from websockets.asyncio.client import ClientConnection, connect

from antiphon.server.audio.g711 import decode_ulaw
from bench.calls_server import ServerProcess

AUDIBLE = 327
"""-40 dBFS: below it 16-bit samples count as silence."""
SILENT_PACKET_BYTES = 40
"""Encoded silence has 32; speech has 60 and more."""
PATIENCE_S = 120.0


class Ear:
    """Notes when the first sound arrives, and the longest wait between two frames."""

    def __init__(self) -> None:
        self._heard = asyncio.Event()
        self._listening = False
        self._last: float | None = None
        self.longest_wait_s = 0.0
        self.at = 0.0

    def listen(self) -> None:
        """Wait for a new sound."""
        self._listening = True
        self._last = None
        self.longest_wait_s = 0.0
        self._heard.clear()

    def hear(self, is_sound: bool) -> None:
        """Take a frame."""
        now = time.monotonic()
        if self._last is not None:
            self.longest_wait_s = max(self.longest_wait_s, now - self._last)
        self._last = now
        if is_sound and self._listening:
            self.at = now
            self._listening = False
            self._heard.set()

    async def heard(self) -> float:
        """When the first sound came."""
        async with asyncio.timeout(PATIENCE_S):
            await self._heard.wait()
        return self.at


@dataclass
class Peer:
    """A call with an agent on it."""

    ear: Ear
    agent: ClientConnection

    async def first_sound_s(self, text: str) -> float:
        """Send a whole text; seconds until the first sound."""
        self.ear.listen()
        began = time.monotonic()
        await self.agent.send(json.dumps({"type": "input.text", "text": text}))
        await self.agent.send(json.dumps({"type": "input.done"}))
        return await self.ear.heard() - began

    async def until_done(self) -> None:
        """Wait until the turn was heard."""
        async with asyncio.timeout(PATIENCE_S):
            async for raw in self.agent:
                event: dict[str, Any] = json.loads(raw)
                if event["type"] == "error":
                    raise RuntimeError(event["message"])
                if event["type"] == "session.done":
                    return


Connect = Callable[[ServerProcess, Ear, str], AbstractAsyncContextManager[str]]


@dataclass(frozen=True)
class Door:
    """A way in. `connect` yields the name under which the call is found."""

    name: str
    connect: Connect
    paced: bool
    """Whether our own clock sends each frame."""


@asynccontextmanager
async def open_peer(server: ServerProcess, door: Door) -> AsyncIterator[Peer]:
    """Call in at a door, and put an agent on the call."""
    ear = Ear()
    async with door.connect(server, ear, str(uuid.uuid4())) as name:
        agent = await _agent(server, name)
        try:
            yield Peer(ear, agent)
        finally:
            await agent.close()


async def _agent(server: ServerProcess, name: str) -> ClientConnection:
    """Follow a call as soon as the server knows it."""
    url = f"{server.url.replace('http', 'ws', 1)}/v1/calls/{name}/control"
    async with asyncio.timeout(PATIENCE_S):
        while True:
            agent = await connect(url, proxy=None, compression=None)
            try:
                await agent.recv()
            except Exception:  # refused: the call has not begun yet
                await asyncio.sleep(0.05)
            else:
                return agent


@asynccontextmanager
async def _audiosocket(server: ServerProcess, ear: Ear, name: str) -> AsyncIterator[str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.audiosocket_port)
    writer.write(struct.pack("!BH", 0x01, 16) + uuid.UUID(name).bytes)
    writer.write(struct.pack("!BH", 0x10, 320) + bytes(320))

    async def listen() -> None:
        while True:
            _, length = struct.unpack("!BH", await reader.readexactly(3))
            samples = np.frombuffer(await reader.readexactly(length), "<i2")
            ear.hear(bool(len(samples)) and int(np.abs(samples).max()) > AUDIBLE)

    listening = asyncio.create_task(listen())
    try:
        yield name
    finally:
        listening.cancel()
        writer.close()


@asynccontextmanager
async def _twilio(server: ServerProcess, ear: Ear, name: str) -> AsyncIterator[str]:
    url = f"{server.url.replace('http', 'ws', 1)}/v1/twilio"
    async with connect(url, proxy=None, compression=None) as socket:
        media_format = {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}
        start = {"streamSid": "MZ1", "callSid": name, "mediaFormat": media_format}
        await socket.send(json.dumps({"event": "start", "streamSid": "MZ1", "start": start}))
        dry_at = 0.0

        async def played(raw: str | bytes, at: float) -> None:
            await asyncio.sleep(at - time.monotonic())
            await socket.send(raw)

        async def listen() -> None:
            nonlocal dry_at
            marks: set[asyncio.Task[None]] = set()
            async for raw in socket:
                message = json.loads(raw)
                if message["event"] == "media":
                    samples = decode_ulaw(base64.b64decode(message["media"]["payload"]))
                    dry_at = max(dry_at, time.monotonic()) + len(samples) / 8000
                    ear.hear(int(np.abs(samples).max()) > AUDIBLE)
                elif message["event"] == "mark":
                    marks.add(asyncio.create_task(played(raw, dry_at)))

        listening = asyncio.create_task(listen())
        try:
            yield name
        finally:
            listening.cancel()


@asynccontextmanager
async def _webrtc(server: ServerProcess, ear: Ear, name: str) -> AsyncIterator[str]:
    import aioice.ice
    from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription
    from aiortc.rtp import RtpPacket

    aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]
    pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    receiver = pc.addTransceiver("audio", direction="recvonly").receiver

    # Packets are taken as they arrive: aiortc's own jitter buffer and decoder would add 80 ms, and
    # the cost of twenty decoders.
    async def take(packet: RtpPacket, arrival_time_ms: int) -> None:
        ear.hear(len(packet.payload) > SILENT_PACKET_BYTES)

    receiver._handle_rtp_packet = take  # type: ignore[method-assign]
    try:
        await pc.setLocalDescription(await pc.createOffer())
        async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
            answer = await http.post(
                f"{server.url}/v1/rtc",
                content=pc.localDescription.sdp,
                headers={"Content-Type": "application/sdp"},
            )
        answer.raise_for_status()
        await pc.setRemoteDescription(RTCSessionDescription(answer.text, "answer"))
        yield answer.headers["location"].rsplit("/", 1)[1]
    finally:
        await pc.close()


DOORS = (
    Door("webrtc", _webrtc, paced=True),
    Door("twilio", _twilio, paced=False),
    Door("audiosocket", _audiosocket, paced=True),
)
