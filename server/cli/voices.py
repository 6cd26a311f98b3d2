"""`antiphon voices`: who can speak."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.table import Table

from antiphon.engine.errors import InvalidRequest
from antiphon.server.cli.console import out, print_json
from antiphon.server.cli.conversation import ServerRefused, ServerUnreachable
from antiphon.server.cli.local_server import local_server

_TIMEOUT_S = 10.0
_ENROLMENT_TIMEOUT_S = 300.0
"""The first one loads the networks that hear recordings."""


def run_voices(url: str | None, config: Path | None, api_key: str | None, *, as_json: bool) -> None:
    """Print the voices of a server."""
    if url is not None:
        listing = get_json(url, "/v1/voices", api_key)
    else:
        arguments = ["--config", str(config)] if config is not None else []
        with local_server(arguments, quiet=as_json) as ready:
            listing = get_json(ready["url"], "/v1/voices", api_key)
    if as_json:
        print_json(listing)
        return
    table = Table(box=None, pad_edge=False)
    for column in ("voice", "model", "language", "kind", "description"):
        table.add_column(column)
    for voice in listing["voices"]:
        table.add_row(
            *(str(voice.get(key, "")) for key in ("name", "model", "language", "mode")),
            str(voice.get("description", "")),
        )
    out.print(table)


def get_json(base: str, path: str, api_key: str | None = None) -> dict[str, Any]:
    """Fetch a JSON object from a server; raises as `ask_json`."""
    return ask_json("GET", base, path, api_key)


def ask_json(
    method: str,
    base: str,
    path: str,
    api_key: str | None = None,
    body: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Ask a server for a JSON object, with one as the question where `body` is given.

    Raises:
        ServerUnreachable, ServerRefused, InvalidRequest.
    """
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{http_address(base)}{path}", data, method=method)
    if data is not None:
        request.add_header("Content-Type", "application/json")
    if api_key:
        request.add_header("Authorization", f"Bearer {api_key}")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        timeout_s = _TIMEOUT_S if data is None else _ENROLMENT_TIMEOUT_S
        with opener.open(request, timeout=timeout_s) as answer:
            value = json.load(answer)
    except urllib.error.HTTPError as error:
        raise ServerRefused(error_of(error)) from error
    except (OSError, ValueError) as error:
        raise ServerUnreachable(f"No server answers at {base}.", field="url") from error
    if not isinstance(value, dict):
        raise ServerUnreachable(f"{base} is not an Antiphon server.", field="url")
    return value


def http_address(base: str) -> str:
    """Return scheme and host of a server that is named by any of its addresses.

    Raises:
        InvalidRequest: it is none.
    """
    parts = urlsplit(base if "://" in base else f"http://{base}")
    scheme = {"ws": "http", "wss": "https"}.get(parts.scheme, parts.scheme)
    if scheme not in ("http", "https") or not parts.netloc:
        raise InvalidRequest(f"{base!r} is not the address of a server.", field="url")
    return f"{scheme}://{parts.netloc}"


def error_of(answer: urllib.error.HTTPError) -> dict[str, Any]:
    """Return what an answer says was wrong."""
    fallback = {"message": f"The server answered {answer.code} {answer.reason}."}
    try:
        body = json.load(answer)
    except ValueError:
        return fallback
    error = body.get("error", body) if isinstance(body, dict) else None
    return error if isinstance(error, dict) and "message" in error else fallback
