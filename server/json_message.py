"""JSON of strangers whose form is not known beforehand: an object that breaks nothing later."""

from __future__ import annotations

from typing import Any

import msgspec

from antiphon.server.errors import MalformedMessage


def json_object(message: str) -> dict[str, Any]:
    """Read a message that is a JSON object.

    Numbers are finite and text is whole characters: half of a surrogate pair, which Python's own
    reader lets through, could be neither listed nor handed on to anyone.

    Raises:
        MalformedMessage: it is something else.
    """
    try:
        body = msgspec.json.decode(message)
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise MalformedMessage("The message is not JSON.") from None
    if not isinstance(body, dict):
        raise MalformedMessage("The message is not a JSON object.")
    return body
