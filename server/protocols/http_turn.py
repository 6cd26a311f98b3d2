"""One turn as an HTTP response: a stream of audio, or of server-sent events with it."""

from __future__ import annotations

import asyncio
import base64
import uuid
from contextlib import suppress
from typing import Any

import msgspec
from starlette.types import Receive, Send

from antiphon.engine.errors import AntiphonError
from antiphon.server.audio import CONTENT_TYPES, make_encoder
from antiphon.server.conversation import Conversation
from antiphon.server.errors import SlowReader, outcome
from antiphon.server.handshake import error_body, error_headers
from antiphon.server.house import House
from antiphon.server.settings import TurnSettings
from antiphon.server.transport import slow_reader
from antiphon.server.turn_events import (
    Audio,
    Configure,
    Done,
    Effect,
    EndText,
    Feed,
    Opened,
    PushText,
    Refused,
)


async def speak_turn(
    house: House,
    settings: TurnSettings,
    text: str | None,
    outlet: HttpOutlet,
    receive: Receive,
) -> None:
    """Speak one turn into a response and return when it is over, or when the client has left.

    `text` is None where the request brings a recording instead.
    """
    conversation = Conversation(
        engines=house.engines,
        resources=house.resources,
        limits=house.config.server.limits,
        outlet=outlet,
    )
    leaving = asyncio.create_task(_gone(receive))
    ended = asyncio.create_task(outlet.ended.wait())
    try:
        with house.conversing(conversation):
            await conversation.submit(Configure("", settings))
            if text is not None:
                await conversation.submit(PushText("", text))
            if not outlet.ended.is_set():
                await conversation.submit(EndText(""))
            await asyncio.wait({leaving, ended}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        leaving.cancel()
        ended.cancel()
        await conversation.close()
    # An outlet that broke has not sent its last chunk. Uvicorn then closes the connection: the only
    # way left to say that the body is not whole.


class HttpOutlet:
    """Writes one turn as an HTTP response (`Outlet`)."""

    def __init__(self, send: Send, patience_s: float) -> None:
        self._send = send
        self._patience_s = patience_s
        self._started = False
        self.sse = False
        self.settings: TurnSettings | None = None
        self.ended = asyncio.Event()

    async def room(self, turn: int) -> None:
        """The response's own back-pressure is enough."""

    async def writable(self) -> None:
        """`write` waits by itself: with one turn a response there is nobody to hold up."""

    def note(self, effect: Opened | Feed) -> None:
        """Nothing is kept."""

    def stalled(self, error: SlowReader) -> None:
        """Give the response up."""
        self.ended.set()

    async def write(self, effect: Effect) -> None:
        """Write audio, or the end."""
        if self.ended.is_set():
            return
        match effect:
            case Audio(payload=payload):
                await self._body(payload)
            case Refused(error=error) if not self._started:
                await self.refuse(error)
            case Refused(error=error) if self.sse:
                told = msgspec.json.decode(error_body(error), type=dict[str, Any])
                await self._event({"type": "error", **told})
                await self._chunk(b"", more=False)
                self.ended.set()
            case Refused():
                self.ended.set()
            case Done(report):
                silent = not self._started
                await self._start()
                if silent and not self.sse:
                    await self._chunk(_empty_file(report.settings), more=True)
                if self.sse:
                    characters, samples = report.characters, report.samples
                    tokens = round(25 * samples / report.settings.sample_rate)
                    await self._event(
                        {
                            "type": "speech.audio.done",
                            "usage": {
                                "input_tokens": characters,
                                "output_tokens": tokens,
                                "total_tokens": characters + tokens,
                            },
                        }
                    )
                await self._chunk(b"", more=False)
                self.ended.set()

    async def refuse(self, error: AntiphonError) -> None:
        """Answer with the error instead of audio."""
        if error.field == "text":
            error.field = "input"  # what the text is called here
        self._started = True
        headers = [*error_headers(error), (b"x-request-id", uuid.uuid4().hex.encode())]
        status = outcome(error).http_status
        with suppress(OSError):
            await self._send({"type": "http.response.start", "status": status, "headers": headers})
            await self._send({"type": "http.response.body", "body": error_body(error)})
        self.ended.set()

    async def _body(self, payload: bytes) -> None:
        await self._start()
        if self.sse:
            audio = base64.b64encode(payload).decode("ascii")
            await self._event({"type": "speech.audio.delta", "audio": audio})
        else:
            await self._chunk(payload, more=True)

    async def _event(self, event: dict[str, Any]) -> None:
        await self._chunk(b"data: " + msgspec.json.encode(event) + b"\n\n", more=True)

    async def _start(self) -> None:
        if self._started:
            return
        self._started = True
        assert self.settings is not None
        kind = "text/event-stream" if self.sse else CONTENT_TYPES[self.settings.format]
        headers = [
            (b"content-type", kind.encode()),
            (b"cache-control", b"no-store"),
            (b"x-request-id", uuid.uuid4().hex.encode()),
        ]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _chunk(self, body: bytes, *, more: bool) -> None:
        try:
            async with asyncio.timeout(self._patience_s):
                await self._send({"type": "http.response.body", "body": body, "more_body": more})
        except TimeoutError:
            raise slow_reader(self._patience_s) from None


def _empty_file(settings: TurnSettings) -> bytes:
    """A file without samples, so that what comes back for a text without words can be opened."""
    return b"".join(make_encoder(settings.format, settings.sample_rate).finish())


async def _gone(receive: Receive) -> None:
    """Return when the client has left. A closed connection is a cancel."""
    while (await receive())["type"] != "http.disconnect":
        pass
