"""API keys: where clients put them, and how they are compared."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers

from antiphon.server.config import is_loopback
from antiphon.server.errors import Unauthorized

_HEADERS = ("xi-api-key", "x-api-key", "kyutai-api-key")
_QUERY = ("api_key", "authorization", "auth_id")
SUBPROTOCOL = "token"
"""Browsers cannot set headers on a WebSocket; they offer the subprotocols `token, <key>`."""


class Keyring:
    """The accepted keys, as digests."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    @property
    def is_open(self) -> bool:
        """Whether no key is asked for."""
        return not self._digests

    def check(self, offered: Iterable[str]) -> None:
        """Accept if one of the offered keys is known. Takes as long for a wrong key as for a right.

        Raises:
            Unauthorized: none, or only unknown ones.
        """
        if self.is_open:
            return
        found, any_offered = False, False
        for key in offered:
            any_offered = True
            digest = _digest(key)
            for known in self._digests:
                found |= hmac.compare_digest(digest, known)
        if not any_offered:
            raise Unauthorized("An API key is needed.", field="authorization")
        if not found:
            raise Unauthorized("The API key is not known here.", field="authorization")


def offered_keys(
    headers: Headers, query_string: bytes, subprotocols: Sequence[str] = ()
) -> Iterator[str]:
    """Every key that a request carries, wherever its client puts them."""
    for name in _HEADERS:
        if value := headers.get(name):
            yield value
    if value := headers.get("authorization"):
        yield _without_scheme(value)
    query: Mapping[str, list[str]] = parse_qs(query_string.decode("latin-1"))
    for name in _QUERY:
        for value in query.get(name, []):
            yield _without_scheme(value)
    if len(subprotocols) >= 2 and subprotocols[0].lower() == SUBPROTOCOL:
        yield subprotocols[1]


def origin_allowed(headers: Headers, allowed: Sequence[str]) -> bool:
    """Whether a web page may use the server: its own pages, and those of the configured origins.

    Without this, any page a user visits could speak through a server on their loopback address.
    Clients that are not browsers send no origin.
    """
    origin = headers.get("origin")
    if origin is None or origin in allowed:
        return True
    host = headers.get("host")
    return host is not None and origin in (f"http://{host}", f"https://{host}")


def host_allowed(headers: Headers, allowed: Sequence[str]) -> bool:
    """Whether the client believes that it talks to its own machine, or to a configured name.

    A page whose name was made to resolve to a loopback address (DNS rebinding) has its own name in
    `Host`, and so in an origin that looks like ours.
    """
    try:
        name = urlsplit(f"//{headers.get('host', '')}").hostname
    except ValueError:
        return False
    return name is not None and (is_loopback(name) or name in allowed)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _without_scheme(value: str) -> str:
    scheme, _, rest = value.partition(" ")
    return rest.strip() if scheme.lower() in ("bearer", "token") and rest else value
