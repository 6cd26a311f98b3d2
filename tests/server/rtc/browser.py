"""A browser without a screen: aiortc as the other end of a call."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import av
import httpx
import numpy as np
from aiortc import RTCConfiguration, RTCDataChannel, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError, MediaStreamTrack

from tests.server.harness import PATIENCE_S, Running


@dataclass
class Browser:
    pc: RTCPeerConnection
    channel: RTCDataChannel
    location: str = ""
    answer: str = ""
    events: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)
    frames: list[np.ndarray] = field(default_factory=list)
    frame_times: list[int] = field(default_factory=list)
    listening: asyncio.Task[None] | None = None

    def send(self, kind: str, **fields: Any) -> None:
        self.channel.send(json.dumps({"type": kind, **fields}))

    async def until(self, kind: str) -> dict[str, Any]:
        """The next event of this type; what comes before is passed over."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                event = await self.events.get()
                if event["type"] == kind:
                    return event

    async def listen(self, track: MediaStreamTrack) -> None:
        try:
            while True:
                frame = await track.recv()
                assert isinstance(frame, av.AudioFrame)
                self.frames.append(frame.to_ndarray().reshape(-1, 2)[:, 0] / 32768)
                self.frame_times.append(frame.pts or 0)
        except MediaStreamError:
            return

    @property
    def samples(self) -> np.ndarray:
        """What was heard so far, 48 kHz mono."""
        return np.concatenate(self.frames) if self.frames else np.zeros(0)

    def speech(self) -> np.ndarray:
        """What was heard from the first sound to the last."""
        samples = self.samples
        loud = np.flatnonzero(np.abs(samples) > 0.02)
        return samples[loud[0] : loud[-1] + 1] if len(loud) else samples[:0]


@asynccontextmanager
async def browser(
    server: Running, *, query: str = "", label: str = "tts", microphone: Any = None
) -> AsyncIterator[Browser]:
    """Connect as a page would: audio to receive, one data channel, all candidates in the offer."""
    pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    page = Browser(pc, pc.createDataChannel(label))

    @pc.on("track")
    def on_track(track: MediaStreamTrack) -> None:
        page.listening = asyncio.create_task(page.listen(track))

    page.channel.on("message", lambda message: page.events.put_nowait(json.loads(message)))
    opened = asyncio.Event()
    page.channel.on("open", opened.set)
    if microphone is None:
        pc.addTransceiver("audio", direction="recvonly")
    else:
        pc.addTrack(microphone)
    try:
        await pc.setLocalDescription(await pc.createOffer())
        async with httpx.AsyncClient(trust_env=False, base_url=server.url) as http:
            answer = await http.post(
                f"/v1/rtc{query}",
                content=pc.localDescription.sdp,
                headers={"Content-Type": "application/sdp"},
            )
        assert answer.status_code == 201, answer.text
        page.location, page.answer = answer.headers["location"], answer.text
        await pc.setRemoteDescription(RTCSessionDescription(answer.text, "answer"))
        async with asyncio.timeout(PATIENCE_S):
            await opened.wait()
        yield page
    finally:
        if page.listening is not None:
            page.listening.cancel()
        await pc.close()
