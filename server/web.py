"""The browser page at `/`: files of `client_demo/web`, served as they are."""

from __future__ import annotations

from pathlib import Path

from starlette.routing import BaseRoute, Match, Mount
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

        await super().__call__(scope, receive, with_headers)


class PageMount(Mount):
    """The page at the root, which claims the paths of its own files and no others.

    A plain mount claims every path: one that exists only for POST would answer a GET as an unknown
    file, and a wrong method with the methods of files.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__("/", _Page(directory=directory, html=True))
        files = (file.relative_to(directory) for file in directory.rglob("*") if file.is_file())
        self._paths = frozenset({"/", *(f"/{file.as_posix()}" for file in files)})

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """See `BaseRoute`."""
        if scope["type"] != "http" or scope["path"] not in self._paths:
            return Match.NONE, {}
        _, child = super().matches(scope)
        return (Match.FULL if scope["method"] in ("GET", "HEAD") else Match.PARTIAL), child


def web_routes() -> list[BaseRoute]:
    """The page; nothing where its files are not installed."""
    directory = web_directory()
    if not directory.is_dir():
        return []
    return [PageMount(directory)]
