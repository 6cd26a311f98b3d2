"""What happens before a WebSocket is accepted: origin, key, readiness, room."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from antiphon.engine.errors import AntiphonError, Overloaded
from antiphon.server.admission import Slot
from antiphon.server.auth import SUBPROTOCOL, host_allowed, offered_keys, origin_allowed
from antiphon.server.errors import Unauthorized, describe, outcome
from antiphon.server.house import House


async def admit(house: House, scope: Scope, receive: Receive, send: Send) -> Slot | None:
    """Accept a WebSocket and take its slot, or refuse it with an HTTP status and return None."""
    connect = await receive()
    assert connect["type"] == "websocket.connect"
    headers = Headers(scope=scope)
    subprotocols: list[str] = scope.get("subprotocols", [])
    try:
        check_caller(house, headers, scope["query_string"], subprotocols)
        house.check_open()
        slot = house.connections.acquire()
    except AntiphonError as error:
        house.metrics.errors.labels(error.code).inc()
        await refuse(send, error)
        return None
    chosen = SUBPROTOCOL if subprotocols and subprotocols[0].lower() == SUBPROTOCOL else None
    await send({"type": "websocket.accept", "subprotocol": chosen, "headers": []})
    return slot


def check_caller(
    house: House, headers: Headers, query_string: bytes, subprotocols: list[str] | None = None
) -> None:
    """Check who is calling.

    Raises:
        Unauthorized: a page of a foreign origin, no key, or an unknown one.
    """
    if not origin_allowed(headers, house.config.server.allowed_origins):
        raise Unauthorized(
            "Pages of this origin may not use the server; see server.allowed_origins.",
            field="origin",
        )
    if house.keys.is_open and not host_allowed(headers, house.config.server.allowed_hosts):
        raise Unauthorized(
            "Without API keys the server answers to this machine's own names only; see "
            "server.allowed_hosts.",
            field="host",
        )
    house.keys.check(offered_keys(headers, query_string, subprotocols or []))


def owner_of(
    house: House, headers: Headers, query_string: bytes, subprotocols: Sequence[str] = ()
) -> str:
    """Who calls: a digest of the caller's key, "" where no keys are configured."""
    if house.keys.is_open:
        return ""
    key = next(iter(offered_keys(headers, query_string, subprotocols)), "")
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def error_headers(error: AntiphonError) -> list[tuple[bytes, bytes]]:
    """Headers of an HTTP answer that reports `error`."""
    headers = [(b"content-type", b"application/json")]
    if isinstance(error, Overloaded):
        headers.append((b"retry-after", str(max(1, round(error.retry_after_s))).encode()))
    return headers


def error_body(error: AntiphonError) -> bytes:
    """Body of an HTTP answer that reports `error`; `type` and `param` are OpenAI's names."""
    fields: dict[str, Any] = {
        **describe(error),
        "type": outcome(error).openai_type,
        "param": error.field,
    }
    return msgspec.json.encode({"error": fields})


async def refuse(send: Send, error: AntiphonError) -> None:
    """Answer a WebSocket handshake with an HTTP status."""
    await send(
        {
            "type": "websocket.http.response.start",
            "status": outcome(error).http_status,
            "headers": error_headers(error),
        }
    )
    await send({"type": "websocket.http.response.body", "body": error_body(error)})
