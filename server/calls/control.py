"""`/v1/calls`: list, end, and drive calls of every kind."""

from __future__ import annotations

import asyncio
from collections import deque

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import Receive, Scope, Send

from antiphon.engine.errors import AntiphonError
from antiphon.server.calls.call import Call
from antiphon.server.calls.leg import Leg
from antiphon.server.calls.registry import Calls
from antiphon.server.handshake import admit, owner_of
from antiphon.server.house import House
from antiphon.server.http import HttpPart, json_response

_MOST_TEXTS = 1_000
"""Messages that may wait for an agent that does not read; then its leg is closed."""
_LAST_WORDS_S = 1.0
"""For what still waits when a call ends."""
_MOST_AUDIO = 50
"""Messages of caller audio that may wait (1 s); then the oldest are dropped."""


class Mailbox:
    """Messages on their way to one WebSocket. Putting never waits; sending is one task's."""

    def __init__(self) -> None:
        self._messages: deque[str | bytes] = deque()
        self._audio = 0
        self._filled = asyncio.Event()
        self._closed = False
        self.overflowed = False

    def __call__(self, message: str | bytes) -> None:
        """Add a message (`Sink`)."""
        if self.overflowed:
            return
        if isinstance(message, bytes):
            self._audio += 1
            if self._audio > _MOST_AUDIO:
                self._drop_oldest_audio()
        elif len(self._messages) - self._audio >= _MOST_TEXTS:
            self.overflowed = True
            self._messages.clear()
            self._audio = 0
            self._filled.set()
            return
        self._messages.append(message)
        self._filled.set()

    async def take(self) -> str | bytes | None:
        """Wait for the next message; None at the end."""
        while not self._messages:
            if self._closed or self.overflowed:
                return None
            self._filled.clear()
            await self._filled.wait()
        message = self._messages.popleft()
        self._audio -= isinstance(message, bytes)
        return message

    def close(self) -> None:
        """Nothing comes any more: `take` ends once all was taken."""
        self._closed = True
        self._filled.set()

    def _drop_oldest_audio(self) -> None:
        for i, message in enumerate(self._messages):
            if isinstance(message, bytes):
                del self._messages[i]
                self._audio -= 1
                return


class ControlLeg:
    """`WS /v1/calls/{id}/control` as an ASGI application."""

    def __init__(self, house: House, calls: Calls) -> None:
        self._house = house
        self._calls = calls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one agent from handshake to close, or to the end of the call."""
        slot = await admit(self._house, scope, receive, send)
        if slot is None:
            return
        try:
            owner = _owner(self._house, scope)
            try:
                call = self._calls.find(scope["path_params"]["call_id"], owner)
            except AntiphonError as error:
                await send({"type": "websocket.close", "code": 1008, "reason": error.code})
                return
            await self._follow(call, receive, send)
        finally:
            slot.release()

    async def _follow(self, call: Call, receive: Receive, send: Send) -> None:
        mailbox = Mailbox()
        leg = Leg(call, mailbox)
        gone = asyncio.create_task(_receive(leg, receive))
        sending = asyncio.create_task(_send(mailbox, send))
        ended = asyncio.create_task(call.ended.wait())
        tasks = {gone, sending, ended}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                mailbox.close()
                await asyncio.wait({sending}, timeout=_LAST_WORDS_S)
        finally:
            leg.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if not gone.cancelled():
            return  # the agent went away by itself
        code, reason = (1008, "slow_reader") if mailbox.overflowed else (1000, "the call ended")
        await send({"type": "websocket.close", "code": code, "reason": reason})


async def _receive(leg: Leg, receive: Receive) -> None:
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            return
        await leg.receive(message.get("text") or "")


async def _send(mailbox: Mailbox, send: Send) -> None:
    while (message := await mailbox.take()) is not None:
        kind = "bytes" if isinstance(message, bytes) else "text"
        await send({"type": "websocket.send", kind: message})


def _owner(house: House, scope: Scope) -> str:
    subprotocols: list[str] = scope.get("subprotocols", [])
    return owner_of(house, Headers(scope=scope), scope["query_string"], subprotocols)


def calls_routes(house: House, calls: Calls, http: HttpPart) -> list[BaseRoute]:
    """Routes under `/v1/calls`."""

    def owner(request: Request) -> str:
        return owner_of(house, request.headers, request.scope["query_string"])

    async def listing(request: Request) -> Response:
        return json_response({"calls": calls.listing(owner(request))})

    async def end(request: Request) -> Response:
        call = calls.find(request.path_params["call_id"], owner(request))
        call.hang_up("ended over /v1/calls")
        return Response(status_code=204)

    return [
        Route("/v1/calls", http.guarded(listing)),
        Route("/v1/calls/{call_id}", http.guarded(end), methods=["DELETE"]),
        WebSocketRoute("/v1/calls/{call_id}/control", ControlLeg(house, calls)),
    ]
