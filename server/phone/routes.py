"""Doors for phone providers that come by WebSocket, and the TwiML that leads Twilio to its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import parse_qsl
from xml.sax.saxutils import quoteattr

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import Receive, Scope, Send

from antiphon.engine.errors import AntiphonError, InvalidConfiguration
from antiphon.server.calls.registry import Calls
from antiphon.server.handshake import check_caller, owner_of, refuse
from antiphon.server.house import House
from antiphon.server.http import HttpPart, error_response, read_body
from antiphon.server.phone.asterisk import AsteriskDialect
from antiphon.server.phone.bridge import PhoneBridge
from antiphon.server.phone.dialect import Dialect
from antiphon.server.phone.json_dialect import EXOTEL, PLIVO, TELNYX, TWILIO, JsonDialect
from antiphon.server.phone.signature import check_signature, is_configured
from antiphon.server.phone.vonage import VonageDialect

TWILIO_PATH = "/v1/twilio"
_LONGEST_FORM = 64 * 1024
_PARAMETERS = ("voice", "model", "language")

_DIALECTS: Mapping[str, Callable[[], Dialect]] = {
    TWILIO_PATH: lambda: JsonDialect(TWILIO),
    "/v1/telnyx": lambda: JsonDialect(TELNYX),
    "/v1/plivo": lambda: JsonDialect(PLIVO),
    "/v1/exotel": lambda: JsonDialect(EXOTEL),
    "/v1/vonage": VonageDialect,
    "/v1/asterisk": AsteriskDialect,
}


class PhoneDoor:
    """One provider's door, as an ASGI application."""

    def __init__(self, house: House, calls: Calls, path: str) -> None:
        self._house = house
        self._calls = calls
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one call, or refuse the handshake."""
        connect = await receive()
        assert connect["type"] == "websocket.connect"
        dialect = _DIALECTS[self._path]()
        try:
            owner = self._check(scope)
            self._house.check_open()
            slot = self._house.connections.acquire()
        except AntiphonError as error:
            self._house.metrics.errors.labels(error.code).inc()
            await refuse(send, error)
            return
        offered = scope.get("subprotocols", [])
        chosen = dialect.subprotocol if dialect.subprotocol in offered else None
        try:
            await send({"type": "websocket.accept", "subprotocol": chosen, "headers": []})
            await PhoneBridge(self._calls, dialect, scope, receive, send, owner).run()
        finally:
            slot.release()

    def _check(self, scope: Scope) -> str:
        """Check who comes; whose call it is."""
        headers = Headers(scope=scope)
        if self._path == TWILIO_PATH and is_configured(self._calls.config):
            check_signature(self._calls.config, headers, self._public_url())
            return ""
        query = scope["query_string"]
        check_caller(self._house, headers, query)
        return owner_of(self._house, headers, query)

    def _public_url(self) -> str:
        return public_url(self._calls) + self._path


def public_url(calls: Calls) -> str:
    """Where providers reach this server.

    Raises:
        InvalidConfiguration: nobody said; `field` is `calls.public_url`.
    """
    if calls.config.public_url is None:
        raise InvalidConfiguration(
            "Twilio's door needs calls.public_url, the address under which Twilio reaches it.",
            field="calls.public_url",
        )
    return calls.config.public_url.rstrip("/")


def phone_routes(house: House, calls: Calls, http: HttpPart) -> list[BaseRoute]:
    """Routes of every provider."""

    async def twiml(request: Request) -> Response:
        try:
            form = await _form(request)
            base = public_url(calls)
            if is_configured(calls.config):
                check_signature(calls.config, request.headers, _webhook_url(base, request), form)
            else:
                check_caller(house, request.headers, request.scope["query_string"])
        except AntiphonError as error:
            return error_response(error)
        return Response(_twiml(base, request), media_type="application/xml")

    doors: list[BaseRoute] = [
        WebSocketRoute(path, PhoneDoor(house, calls, path)) for path in _DIALECTS
    ]
    return [*doors, Route(f"{TWILIO_PATH}/twiml", twiml, methods=["GET", "POST"])]


async def _form(request: Request) -> list[tuple[str, str]]:
    if request.method != "POST":
        return []
    body = await read_body(request, _LONGEST_FORM)
    return parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)


def _webhook_url(base: str, request: Request) -> str:
    """The address that Twilio was told to call, which it signed."""
    query = request.scope["query_string"].decode("latin-1")
    http_base = "http" + base.removeprefix("ws")
    return f"{http_base}{TWILIO_PATH}/twiml" + (f"?{query}" if query else "")


def _twiml(base: str, request: Request) -> str:
    """Connect the call to our socket. Parameters travel inside: Twilio drops query strings."""
    parameters = "".join(
        f"<Parameter name={quoteattr(name)} value={quoteattr(request.query_params[name])}/>"
        for name in _PARAMETERS
        if name in request.query_params
    )
    stream = f"<Stream url={quoteattr(base + TWILIO_PATH)}>{parameters}</Stream>"
    return f'<?xml version="1.0" encoding="UTF-8"?><Response><Connect>{stream}</Connect></Response>'
