"""`WS /v1/audio/speech/stream`: the native protocol, a thin shell around the turn machine.

docs/protocol.md describes it; native_messages.py and native_frames.py are its two directions.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import structlog
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from antiphon.engine.errors import AntiphonError
from antiphon.server.conversation import Conversation
from antiphon.server.engines import Wanted
from antiphon.server.errors import MalformedMessage, SlowReader, outcome
from antiphon.server.handshake import admit, owner_of
from antiphon.server.house import House
from antiphon.server.protocols.native_frames import NativeFrames
from antiphon.server.protocols.native_messages import (
    InputCancel,
    InputDone,
    InputFlush,
    InputText,
    SessionClose,
    SessionConfig,
    decode,
)
from antiphon.server.reading import ReadingWindow
from antiphon.server.settings import TurnSettings
from antiphon.server.transport import SCOPE_KEY, Flow
from antiphon.server.turn_events import (
    Audio,
    Cancel,
    Close,
    CloseConnection,
    Configure,
    Done,
    Effect,
    EndText,
    Feed,
    Flush,
    Input,
    Opened,
    PushText,
    Refused,
)

_log = structlog.get_logger("antiphon.native")


class NativeOutlet:
    """Writes one connection's messages (`Outlet`)."""

    def __init__(self, house: House, flow: Flow, send: Send, session_id: str) -> None:
        self._limits = house.config.server.limits
        self._flow = flow
        self._send = send
        self._frames = NativeFrames(session_id)
        self._reading: dict[int, ReadingWindow] = {}
        self._closed = False
        self.conversation: Conversation | None = None

    async def room(self, turn: int) -> None:
        """Wait for the client's reading and for the bound on the lead."""
        window = self._reading.get(turn)
        if window is not None:
            await window.room(self._limits.unread_audio_s, self._limits.slow_reader_s)
        assert self.conversation is not None
        playback = self.conversation.machine.playback(turn)
        if playback is not None:
            ahead = playback.lead_s(time.monotonic()) - self._limits.audio_lead_s
            if ahead > 0:
                await asyncio.sleep(ahead)

    async def writable(self) -> None:
        """Wait for the transport."""
        if not self._closed:
            await self._flow.writable(self._limits.slow_reader_s)

    async def write(self, effect: Effect) -> None:
        """Hand over an effect's messages; closing is one of them."""
        if self._closed:
            return
        # The other end may be gone; the receiving side learns of it and ends the conversation.
        with suppress(OSError):
            if isinstance(effect, CloseConnection):
                self._closed = True
                await self._send(
                    {"type": "websocket.close", "code": effect.code, "reason": effect.reason}
                )
            else:
                await self._write(effect)

    async def _write(self, effect: Effect) -> None:
        assert self.conversation is not None
        for message in self._frames.write(effect, contexts=self.conversation.machine.contexts):
            kind = "bytes" if isinstance(message, bytes) else "text"
            await self._send({"type": "websocket.send", kind: message})
        if isinstance(effect, Audio):
            window = self._reading.setdefault(effect.turn, ReadingWindow(self._flow))
            window.sent(effect.seconds)
        elif isinstance(effect, Done):
            self._reading.pop(effect.report.turn, None)

    def note(self, effect: Opened | Feed) -> None:
        """Keep a turn's text for `sentence_text`."""
        for _ in self._frames.write(effect, contexts=1):
            raise AssertionError("nothing is sent for these")

    def stalled(self, error: SlowReader) -> None:
        """Close over a full buffer."""
        self._closed = True
        self._flow.close_stalled(outcome(error).close_code, error.code)


class NativeProtocol:
    """The ASGI application of the endpoint."""

    def __init__(self, house: House) -> None:
        self._house = house

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one WebSocket from handshake to close."""
        connection = await admit(self._house, scope, receive, send)
        if connection is None:
            return
        session_id = uuid.uuid4().hex
        log = _log.bind(session=session_id)
        outlet = NativeOutlet(self._house, scope["extensions"][SCOPE_KEY], send, session_id)
        conversation = Conversation(
            engines=self._house.engines,
            resources=self._house.resources,
            limits=self._house.config.server.limits,
            outlet=outlet,
        )
        outlet.conversation = conversation
        try:
            with self._house.conversing(conversation):
                log.info("connected")
                await self._receive(receive, conversation, _caller(self._house, scope))
        finally:
            await conversation.close()
            connection.release()
            log.info("disconnected")

    async def _receive(
        self, receive: Receive, conversation: Conversation, tenant: str | None
    ) -> None:
        def settings(config: SessionConfig) -> TurnSettings:
            return self._house.engines.resolve(replace(wanted(config), tenant=tenant))

        while True:
            message = await receive()
            arrived = time.monotonic()
            if message["type"] == "websocket.disconnect":
                return
            await conversation.submit(command(message.get("text"), settings), at=arrived)


def _caller(house: House, scope: Scope) -> str | None:
    subprotocols: list[str] = scope.get("subprotocols", [])
    return owner_of(house, Headers(scope=scope), scope["query_string"], subprotocols) or None


def command(text: str | None, settings: Callable[[SessionConfig], TurnSettings]) -> Input:
    """What a client's message asks of the turn machine; `settings` resolves a `session.config`."""
    context: str | None = None
    try:
        if text is None:
            raise MalformedMessage("Messages to the server are JSON text, not binary.")
        decoded = decode(text)
        context = decoded.context_id or ""
        match decoded:
            case SessionConfig():
                return Configure(context, settings(decoded))
            case InputText(text=piece):
                return PushText(context, piece)
            case InputDone():
                return EndText(context)
            case InputCancel():
                return Cancel(context)
            case InputFlush():
                return Flush(context)
            case SessionClose():
                return Close(decoded.context_id)
    except AntiphonError as error:
        return Refused(error, context)
    raise AssertionError("every message has a command")


def wanted(config: SessionConfig) -> Wanted:
    """How a `session.config` wants to be spoken."""
    return Wanted(
        model=config.model,
        voice=config.voice,
        language=config.language,
        response_format=config.response_format,
        sample_rate=config.sample_rate,
        speed=config.speed,
        seed=config.seed,
        instructions=config.instructions,
        first_hop=config.first_hop,
        max_hop=config.max_hop,
        hop_growth=config.hop_growth,
        lead_s=config.lead_s,
        word_timestamps=config.word_timestamps,
        split=config.split_granularity,
    )
