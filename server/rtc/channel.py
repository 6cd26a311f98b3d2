"""A data channel: messages in order to whoever understands its label, and back within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from aiortc import RTCDataChannel

from antiphon.server.calls.call import Call

_MOST_BUFFERED = 256 * 1024
"""Bytes that may wait for a page that does not read; then its call ends."""
_MOST_WAITING = 1_000
"""Messages from the page that may wait to be carried out."""
_LONGEST_MESSAGE = 64 * 1024


class ChannelProtocol(Protocol):
    """What is spoken on a channel."""

    async def receive(self, text: str) -> None:
        """Carry out a message."""

    def close(self) -> None:
        """Follow the call no longer."""


class ChannelSink:
    """Sends on a channel (`Sink`)."""

    def __init__(self, channel: RTCDataChannel, call: Call) -> None:
        self._channel = channel
        self._call = call

    def __call__(self, message: str | bytes) -> None:
        """Send, unless the channel is gone or full."""
        if self._channel.readyState != "open":
            return
        if self._channel.bufferedAmount > _MOST_BUFFERED:
            if isinstance(message, str):
                self._call.hang_up("the page does not read its data channel")
            return
        self._channel.send(message)


class Channel:
    """Runs a protocol on a channel. Messages are carried out one after the other."""

    def __init__(
        self,
        channel: RTCDataChannel,
        call: Call,
        speak: Callable[[Call, ChannelSink], ChannelProtocol],
    ) -> None:
        self._call = call
        self._protocol = speak(call, ChannelSink(channel, call))
        self._inbox: asyncio.Queue[str] = asyncio.Queue(_MOST_WAITING)
        self._worker = asyncio.create_task(self._work())
        channel.on("message", self._received)
        channel.on("close", self.close)

    def close(self) -> None:
        """Stop."""
        self._worker.cancel()
        self._protocol.close()

    def _received(self, message: str | bytes) -> None:
        if isinstance(message, bytes):
            return  # nothing binary is asked for
        if len(message) > _LONGEST_MESSAGE or self._inbox.full():
            self._call.hang_up("the page sends more than is taken")
            return
        self._inbox.put_nowait(message)

    async def _work(self) -> None:
        while True:
            await self._protocol.receive(await self._inbox.get())
