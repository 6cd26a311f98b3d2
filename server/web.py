"""The browser page at `/`: files of `client_demo/web`, served as they are."""

from __future__ import annotations

from pathlib import Path

from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive, Scope, Send

import antiphon

_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'self'; connect-src 'self' ws: wss:; media-src 'self' blob:; "
        b"style-src 'self' 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    # The files have no version in their names.
    (b"cache-control", b"no-cache"),
]


def web_directory() -> Path:
    """Where the page's files lie."""
    return Path(antiphon.__file__).parent / "client_demo" / "web"


class _Page(StaticFiles):
    """Static files with headers that keep foreign code out of the page."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        if scope["type"] == "http":
            await super().__call__(scope, receive, with_headers)
        else:
            # A WebSocket to a path that does not exist.
            await send({"type": "websocket.close", "code": 1000})


def web_routes() -> list[BaseRoute]:
    """The page, below every other route; nothing where its files are not installed."""
    directory = web_directory()
    if not directory.is_dir():
        return []
    return [Mount("/", _Page(directory=directory, html=True))]
