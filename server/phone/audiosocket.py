"""Asterisk's AudioSocket: TCP frames, paced by us.

Frame: kind (1 byte), length (2 bytes, big endian), payload. Asterisk connects to us, plays what we
send as it comes, and hangs up after two seconds without traffic; so one frame goes out each 20 ms
from the beginning of the call to its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from antiphon.engine.errors import AntiphonError, InvalidConfiguration, Overloaded
from antiphon.server.admission import Admission
from antiphon.server.audio import AudioFormat
from antiphon.server.calls.call import Call
from antiphon.server.calls.playout import FRAME_S, PREROLL, MediaClock
from antiphon.server.calls.registry import Calls
from antiphon.server.calls.spec import CallKind, CallSpec
from antiphon.server.errors import DeadlineExceeded, MalformedMessage, SlowReader, WrongOrder
from antiphon.server.phone.audio import phone_frames, to_samples

HANG_UP, UUID, DTMF, ERROR = 0x00, 0x01, 0x03, 0xFF
RATES = {
    0x10: 8_000,
    0x11: 12_000,
    0x12: 16_000,
    0x13: 24_000,
    0x14: 32_000,
    0x15: 44_100,
    0x16: 48_000,
}
"""Audio kinds and their rates. 96 and 192 kHz exist as well; no phone has them."""
_HEADER = struct.Struct("!BH")
_FIRST_FRAME_S = 10.0
"""From the connection to the UUID."""
_FIRST_AUDIO_S = 0.5
"""For the first audio, which tells the rate; after it the application's only one is taken."""
_UNREAD_BYTES = 64 * 1024
_SEND_BUFFER_BYTES = 16 * 1024
"""Kernel's share for one call: its own choice would hide megabytes, minutes of a phone's speech,
from the check of whether Asterisk reads."""
_SLOW_READER_S = 2.0

_log = structlog.get_logger("antiphon.audiosocket")


def frame(kind: int, payload: bytes = b"") -> bytes:
    """A frame as it travels."""
    return _HEADER.pack(kind, len(payload)) + payload


async def read_frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The next frame.

    Raises:
        IncompleteReadError: the connection ended.
    """
    kind, length = _HEADER.unpack(await reader.readexactly(_HEADER.size))
    return kind, await reader.readexactly(length)


class AudioSocketCall:
    """One connection of Asterisk's."""

    def __init__(
        self, calls: Calls, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._calls = calls
        self._reader = reader
        self._writer = writer
        self._pending: asyncio.Task[tuple[int, bytes]] | None = None
        """A frame that is being read since before the call was opened."""

    async def run(self) -> None:
        """Serve the call to its end."""
        try:
            identity = await self._identity()
            kind, first = await self._first_audio()
            rate = RATES[kind]
            spec = CallSpec(
                kind=CallKind.PHONE,
                peer="audiosocket",
                audio=AudioFormat.PCM,
                sample_rate=rate,
                frames=phone_frames(AudioFormat.PCM, rate, preroll=PREROLL),
                alias=identity,
                details={"uuid": identity},
            )
            async with self._calls.open(spec) as call:
                call.caller.push(to_samples(AudioFormat.PCM, first), rate)
                await self._live(call, kind)
        except AntiphonError as error:
            self._calls.house.metrics.errors.labels(error.code).inc()
            _log.warning("audiosocket_refused", error=error.code)
        except (asyncio.IncompleteReadError, ConnectionError):
            return  # Asterisk went away before there was a call
        finally:
            await self._close()

    async def _identity(self) -> str:
        try:
            async with asyncio.timeout(_FIRST_FRAME_S):
                kind, payload = await read_frame(self._reader)
        except TimeoutError:
            raise DeadlineExceeded("No UUID came.", field="uuid", limit=_FIRST_FRAME_S) from None
        if kind != UUID or len(payload) != 16:
            raise WrongOrder("The first frame is a UUID of 16 bytes.", field="uuid")
        return str(uuid.UUID(bytes=payload))

    async def _first_audio(self) -> tuple[int, bytes]:
        """Kind and payload of the first audio; a caller who sends none is at 8 kHz."""
        waiting = asyncio.create_task(read_frame(self._reader))
        done, _ = await asyncio.wait({waiting}, timeout=_FIRST_AUDIO_S)
        if not done:
            self._pending = waiting
            return 0x10, b""
        kind, payload = waiting.result()
        if kind not in RATES or not payload or len(payload) % 2:
            raise _bad_frame(kind, payload)
        return kind, payload

    async def _live(self, call: Call, kind: int) -> None:
        work = [
            asyncio.create_task(self._listen(call, kind)),
            asyncio.create_task(self._speak(call, kind)),
            asyncio.create_task(call.ended.wait()),
        ]
        try:
            done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                error = task.exception()
                if isinstance(error, AntiphonError):
                    call.hang_up(error.code)
                    raise error
                if error is not None:
                    call.hang_up("the peer went away")
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)

    async def _listen(self, call: Call, audio_kind: int) -> None:
        while True:
            pending, self._pending = self._pending, None
            kind, payload = await (pending or read_frame(self._reader))
            if kind == HANG_UP:
                call.hang_up("the caller hung up")
                return
            if kind == DTMF and len(payload) == 1:
                call.press(payload.decode("latin-1"))
            elif kind == ERROR:
                call.hang_up("Asterisk reported an error")
                return
            elif kind == audio_kind and payload and len(payload) % 2 == 0:
                if not call.caller.push(to_samples(AudioFormat.PCM, payload), RATES[kind]):
                    await asyncio.sleep(FRAME_S)
            else:
                raise _bad_frame(kind, payload)

    async def _speak(self, call: Call, kind: int) -> None:
        clock = MediaClock(time.monotonic())
        slow_since: float | None = None
        while True:
            now = time.monotonic()
            _, wait_s = clock.next(now)
            if wait_s:
                await asyncio.sleep(wait_s)
            call.ticked(clock)
            self._writer.write(frame(kind, call.frame_or_silence()))
            if self._writer.transport.get_write_buffer_size() < _UNREAD_BYTES:
                slow_since = None
                continue
            slow_since = slow_since or now
            if now - slow_since > _SLOW_READER_S:
                raise SlowReader(
                    "Asterisk reads nothing.", field="slow_reader_s", limit=_SLOW_READER_S
                )

    async def _close(self) -> None:
        if self._pending is not None:
            self._pending.cancel()
        if self._writer.transport.is_closing():
            return
        with contextlib.suppress(ConnectionError, TimeoutError):
            if self._writer.transport.get_write_buffer_size() < _UNREAD_BYTES:
                self._writer.write(frame(HANG_UP))
                self._writer.close()
                async with asyncio.timeout(_SLOW_READER_S):
                    await self._writer.wait_closed()
                return
        self._writer.transport.abort()


def _bad_frame(kind: int, payload: bytes) -> MalformedMessage:
    if kind in RATES:
        return MalformedMessage(
            f"A frame of kind 0x{kind:02x} with {len(payload)} bytes does not belong here.",
            field="length",
        )
    return MalformedMessage(f"A frame of kind 0x{kind:02x} is not known here.", field="kind")


@asynccontextmanager
async def audiosocket_door(calls: Calls) -> AsyncIterator[int | None]:
    """Listen for Asterisk while the block runs; yields the port, None where it is not configured.

    Raises:
        InvalidConfiguration: the port is taken; `field` is `calls.audiosocket_port`.
    """
    config = calls.config
    if config.audiosocket_port is None:
        yield None
        return
    tasks: set[asyncio.Task[None]] = set()
    # A connection is no call before it has said its name, so calls' own limit does not count it.
    room = Admission(
        config.max_calls, calls.house.config.server.limits.retry_after_s, "AudioSocket connections"
    )

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        try:
            slot = room.acquire()
        except Overloaded as error:
            calls.house.metrics.errors.labels(error.code).inc()
            writer.write(frame(HANG_UP))
            writer.close()
            return
        task = asyncio.create_task(AudioSocketCall(calls, reader, writer).run())
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(lambda _: slot.release())

    try:
        server = await asyncio.start_server(
            connected, config.audiosocket_host, config.audiosocket_port
        )
    except OSError as error:
        raise InvalidConfiguration(
            f"AudioSocket cannot listen on {config.audiosocket_host}, port "
            f"{config.audiosocket_port}: {error.strerror}.",
            field="calls.audiosocket_port",
        ) from error
    port: int = server.sockets[0].getsockname()[1]
    _log.info("audiosocket_listens", port=port)
    try:
        yield port
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
