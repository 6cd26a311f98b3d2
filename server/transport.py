"""The WebSocket transport: what the process and the kernel hold for a client is bounded here.

uvicorn's protocol knows neither the size of the send buffer nor what the client has read. This
subclass sets the buffers, and offers the application a `Flow` in the ASGI scope, with which it
waits for room, learns what the client has read, and closes a client that reads nothing.

What has been read is learnt from ping frames put between the audio messages: the client's
WebSocket library answers each in order (RFC 6455, section 5.5.3), so an answered ping means that
everything before it was read. Buffers of kernels and proxies on the way, which alone hold minutes
of Opus, cannot hide a client that stopped reading.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from asyncio.transports import BaseTransport
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from uvicorn._types import ASGISendEvent
from uvicorn.config import Config as UvicornConfig
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.frames import Frame

from antiphon.server.errors import SlowReader

SCOPE_KEY = "antiphon.flow"
_PING = struct.Struct("!4sQ")
_PING_MARK = b"read"
CLOSE_GRACE_S = 2.0
"""How long a client that reads nothing may still read its close frame."""


@dataclass(frozen=True, slots=True)
class BufferSizes:
    """Bytes kept for one client."""

    write_buffer: int
    """High-water mark of the process's buffer, and size of the kernel's send buffer."""


class Flow:
    """Flow control of one connection, for the application."""

    def __init__(self, protocol: MeteredWebSocket) -> None:
        self._protocol = protocol
        self._sent_pings = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def is_writable(self) -> bool:
        """Whether the transport takes more without growing beyond its mark."""
        return self._protocol.writable.is_set()

    @property
    def buffered_bytes(self) -> int:
        """Bytes in the process that the kernel has not taken yet."""
        return self._protocol.transport.get_write_buffer_size()

    async def writable(self, timeout_s: float) -> None:
        """Wait until the transport takes more.

        Raises:
            SlowReader: it did not within `timeout_s`.
        """
        if self.is_writable:
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._protocol.writable.wait()
        except TimeoutError:
            raise slow_reader(timeout_s) from None

    def when_read(self, callback: Callable[[], None]) -> None:
        """Call back once the client has read everything sent so far. Never if it goes away."""
        self._sent_pings += 1
        self._waiting.append((self._sent_pings, callback))
        self._protocol.ping(_PING.pack(_PING_MARK, self._sent_pings))

    def close_stalled(self, code: int, reason: str) -> None:
        """Send a close frame over a full buffer and abort soon after."""
        self._protocol.close_stalled(code, reason)

    def pong(self, payload: bytes) -> bool:
        """Take a pong; False if it is not one of ours."""
        if len(payload) != _PING.size:
            return False
        mark, number = _PING.unpack(payload)
        if mark != _PING_MARK:
            return False
        while self._waiting and self._waiting[0][0] <= number:
            self._waiting.popleft()[1]()
        return True


def slow_reader(limit_s: float) -> SlowReader:
    """The error for a client that read nothing for `limit_s`."""
    return SlowReader(
        f"The client read nothing for {limit_s:g} seconds while audio was waiting.",
        field="slow_reader_s",
        limit=limit_s,
    )


class MeteredWebSocket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket with bounded buffers, read receipts and typed handling of bad UTF-8."""

    buffer_sizes = BufferSizes(32_768)

    def __init__(
        self,
        config: UvicornConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.flow = Flow(self)

    def connection_made(self, transport: BaseTransport) -> None:
        """Bound the buffers before the first byte goes out."""
        super().connection_made(transport)
        size = self.buffer_sizes.write_buffer
        self.transport.set_write_buffer_limits(high=size, low=size // 4)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
            # Not a TCP socket when a test speaks over a Unix socket.
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def run_asgi(self) -> None:
        """Give the application its `Flow`."""
        extensions = cast(dict[str, Any], self.scope["extensions"])
        extensions[SCOPE_KEY] = self.flow
        await super().run_asgi()

    async def send(self, message: ASGISendEvent) -> None:
        """Count a refused handshake as complete; uvicorn would report it as our mistake."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and self.close_sent:
            self.handshake_complete = True

    def send_receive_event_to_app(self) -> None:
        """Hand a message on; text that is not UTF-8 with its bad bytes as surrogate escapes."""
        if self.curr_msg_data_type == "text" and not self.close_sent:
            data = b"".join(self.frames)
            try:
                data.decode()
            except UnicodeDecodeError:
                self.frames = []
                text = data.decode(errors="surrogateescape")
                self.queue.put_nowait({"type": "websocket.receive", "text": text})
                return
        super().send_receive_event_to_app()

    def ping(self, payload: bytes) -> None:
        """Send a ping; a pong with its payload goes to the flow."""
        if self.close_sent or self.disconnected or self.transport.is_closing():
            return
        self.conn.send_ping(payload)
        self.transport.write(b"".join(self.conn.data_to_send()))

    def handle_pong(self, event: Frame) -> None:
        """Sort read receipts from uvicorn's own keep-alive."""
        if not self.flow.pong(bytes(event.data)):
            super().handle_pong(event)
        elif self.pending_ping_payload is not None:
            # A client may answer the latest ping only; it is alive all the same.
            super().handle_pong(Frame(event.opcode, self.pending_ping_payload))

    def close_stalled(self, code: int, reason: str) -> None:
        """Close without waiting for room: `send` would wait for the client that does not read."""
        if self.close_sent or self.disconnected or self.transport.is_closing():
            return
        self.stop_keepalive()
        self.conn.send_close(code, reason)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        # Keeps `run_asgi` from closing the transport gracefully, which would wait for the buffer
        # to empty and so for ever.
        self.close_timer = self.loop.call_later(CLOSE_GRACE_S, self.transport.abort)


def metered_websocket(sizes: BufferSizes) -> type[MeteredWebSocket]:
    """The protocol class for a server with these buffers."""
    return type("MeteredWebSocket", (MeteredWebSocket,), {"buffer_sizes": sizes})
