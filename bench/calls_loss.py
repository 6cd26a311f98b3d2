"""Packet loss on a call: word error with in-band error correction and without.

A relay between browser and server drops a seeded 5 % (then 15 %) of the speech packets. Losses go
back to the server in the receiver's own reports, and it switches correction on. What arrived is
decoded twice: holes filled from the packet behind them, and merely concealed.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray
from websockets.asyncio.client import connect

from bench.asr import transcribe, word_errors
from bench.calls_server import ServerProcess, server_process
from bench.opus_decoder import OpusDecoder
from bench.report import Row, publish, switches
from bench.speech import sentences

LOSSES = (0.05, 0.15)
SEED = 11
RATE = 48_000
FRAME = 960
_CANDIDATE = re.compile(r"^a=candidate:\S+ 1 udp \d+ (\S+) (\d+) typ host.*$", re.MULTILINE)

Address = tuple[str, int]


class Side(asyncio.DatagramProtocol):
    """One socket of the relay."""

    def __init__(self) -> None:
        self.other: Side | None = None
        self.peer: Address | None = None
        self.transport: asyncio.DatagramTransport | None = None
        self.loss = 0.0
        self.random = random.Random(SEED)

    def connection_made(self, transport: Any) -> None:
        """Keep the socket."""
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Address) -> None:
        """Pass on, or drop."""
        self.peer = addr
        other = self.other
        if other is None or other.peer is None or other.transport is None:
            return
        if self.loss and is_speech(data) and self.random.random() < self.loss:
            return
        other.transport.sendto(data, other.peer)

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self.transport is not None
        port: int = self.transport.get_extra_info("sockname")[1]
        return port


def is_speech(data: bytes) -> bool:
    """Whether a datagram is RTP (RFC 5761: neither STUN, DTLS nor RTCP)."""
    return len(data) > 12 and 128 <= data[0] <= 191 and not 64 <= data[1] & 0x7F <= 95


@dataclass
class Received:
    """Packets of a call by sequence number."""

    packets: dict[int, bytes] = field(default_factory=dict)

    def take(self) -> list[bytes | None]:
        """What came since the last call, in order, None for what did not."""
        numbers = sorted(self.packets)
        whole = [self.packets.get(n) for n in range(numbers[0], numbers[-1] + 1)]
        self.packets.clear()
        return whole


@asynccontextmanager
async def lossy_call(server: ServerProcess) -> AsyncIterator[tuple[str, Side, Received]]:
    """A call through the relay: its id, the relay's side towards the server, what arrives."""
    import aioice.ice
    from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription
    from aiortc.rtp import RtpPacket

    aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]
    loop = asyncio.get_running_loop()
    _, front = await loop.create_datagram_endpoint(Side, local_addr=("127.0.0.1", 0))
    _, back = await loop.create_datagram_endpoint(Side, local_addr=("127.0.0.1", 0))
    front.other, back.other = back, front
    pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    receiver = pc.addTransceiver("audio", direction="recvonly").receiver
    received = Received()
    handle = receiver._handle_rtp_packet

    async def note(packet: RtpPacket, arrival_time_ms: int) -> None:
        received.packets[packet.sequence_number] = packet.payload
        await handle(packet, arrival_time_ms)  # which counts the losses for its reports

    receiver._handle_rtp_packet = note  # type: ignore[method-assign]
    try:
        await pc.setLocalDescription(await pc.createOffer())
        offer, front.peer = through(pc.localDescription.sdp, back.port)
        async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
            answer = await http.post(
                f"{server.url}/v1/rtc", content=offer, headers={"Content-Type": "application/sdp"}
            )
        answer.raise_for_status()
        theirs, back.peer = through(answer.text, front.port)
        await pc.setRemoteDescription(RTCSessionDescription(theirs, "answer"))
        yield answer.headers["location"].rsplit("/", 1)[1], back, received
    finally:
        await pc.close()
        for side in (front, back):
            assert side.transport is not None
            side.transport.close()


def through(sdp: str, port: int) -> tuple[str, Address]:
    """The description with the relay's port in place of its own, and its own."""
    found = _CANDIDATE.search(sdp)
    assert found is not None
    address = (found[1], int(found[2]))
    changed = re.sub(rf"^(a=candidate:\S+ 1 udp \d+ \S+) {address[1]} ", rf"\1 {port} ", sdp,
                     flags=re.MULTILINE)  # fmt: skip
    return changed, address


async def speak(
    server: ServerProcess, call: str, texts: list[str], received: Received
) -> list[Any]:
    """Packets of each text."""
    url = f"{server.url.replace('http', 'ws', 1)}/v1/calls/{call}/control"
    said = []
    async with connect(url, proxy=None) as agent:
        for text in texts:
            received.packets.clear()
            await agent.send(json.dumps({"type": "input.text", "text": text}))
            await agent.send(json.dumps({"type": "input.done"}))
            async for raw in agent:
                if json.loads(raw)["type"] == "session.done":
                    break
            await asyncio.sleep(0.3)
            said.append(received.take())
    return said


def decode(packets: list[bytes | None], *, correct: bool) -> NDArray[np.float32]:
    """48 kHz samples; a hole is filled from the packet behind it, or concealed."""
    parts = []
    with OpusDecoder(RATE, FRAME) as decoder:
        for i, packet in enumerate(packets):
            behind = packets[i + 1] if i + 1 < len(packets) else None
            if packet is not None:
                parts.append(decoder.decode(packet))
            elif correct and behind is not None:
                parts.append(decoder.fill(behind))
            else:
                parts.append(decoder.conceal())
    return (np.concatenate(parts) / 32768).astype(np.float32)


def corrects(packet: bytes) -> bool:
    """Whether a packet carries a copy of the one before it (RFC 6716, sections 3.1 and 4.2.4: mono,
    one frame; after the first byte a bit for voice activity, then one for the copy)."""
    celt_only = packet[0] >> 7
    return not celt_only and len(packet) > 1 and bool(packet[1] & 0x40)


def filled_percent(said: list[list[bytes | None]]) -> float | None:
    """Holes for which the packet behind them has a copy."""
    behind = [b for packets in said for a, b in itertools.pairwise(packets) if a is None]
    if not behind:
        return None
    return 100 * sum(packet is not None and corrects(packet) for packet in behind) / len(behind)


def error_percent(texts: list[str], said: list[list[bytes | None]], *, correct: bool) -> float:
    """Word error over all texts."""
    counts = [
        word_errors(text, transcribe(decode(packets, correct=correct), RATE))
        for text, packets in zip(texts, said, strict=True)
    ]
    return 100 * sum(wrong for wrong, _ in counts) / sum(words for _, words in counts)


async def measure(arguments: argparse.Namespace) -> list[Row]:
    """One call without losses, two with."""
    texts = sentences(4 if arguments.quick else arguments.sentences)
    rows: list[Row] = []
    with server_process("live") as server:
        async with lossy_call(server) as (call, _, received):
            clean = await speak(server, call, texts, received)
        rows.append(row("none", texts, clean, correct=False, setting=0))
        for loss in LOSSES[:1] if arguments.quick else LOSSES:
            async with lossy_call(server) as (call, back, received):
                back.loss = loss
                await speak(server, call, texts[:2], received)  # until reports have come
                lossy = await speak(server, call, texts, received)
                async with httpx.AsyncClient(trust_env=False) as http:
                    (listed,) = (await http.get(f"{server.url}/v1/calls")).json()["calls"]
            for correct in (True, False):
                name = f"{100 * loss:g} %, {'corrected' if correct else 'concealed only'}"
                setting = listed["loss_percent"]
                rows.append(row(name, texts, lossy, correct=correct, setting=setting))
    return rows


def row(
    name: str, texts: list[str], said: list[list[bytes | None]], *, correct: bool, setting: int
) -> Row:
    """What one way of decoding made of a call."""
    arrived = [packet for packets in said for packet in packets if packet is not None]
    total = sum(len(packets) for packets in said)
    return {
        "losses": name,
        "word error %": error_percent(texts, said, correct=correct),
        "lost %": 100 * (total - len(arrived)) / total,
        "holes with a copy %": filled_percent(said),
        "setting %": setting,
        "bytes a packet": sum(map(len, arrived)) / len(arrived),
    }


def main() -> None:
    """Measure and publish."""
    parser = switches(__doc__.splitlines()[0])
    parser.add_argument("--sentences", type=int, default=20, help="how many are spoken")
    arguments = parser.parse_args()
    publish(arguments, "Packet loss on a call", asyncio.run(measure(arguments)))


if __name__ == "__main__":
    main()
