"""Errors of the serving layer, and the one table that says how every error looks from outside.

InvalidRequest (engine/errors.py)
├── MalformedMessage      not JSON, not UTF-8, or a field of the wrong type
├── UnspeakableCharacter  a control character or half of a surrogate pair in a field
├── WrongOrder            a message that has no meaning in the present state
├── TextTooLong           more text is waiting to be spoken than the limit allows
├── BodyTooLarge          the body of an HTTP request is larger than the limit allows
├── UnknownCall           no call of that id goes on here
├── UnknownPath           nothing is served under that path
├── WrongMethod           the path is served, by other methods
└── Unauthorized          no key, or a key that is not known here
AntiphonError
├── DeadlineExceeded      a limit in seconds was reached
├── SlowReader            the client stopped reading what it asked for
└── NotReady              the engines are still loading, or the server is draining
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from antiphon.engine.errors import AntiphonError, InvalidRequest, Overloaded


class MalformedMessage(InvalidRequest):
    """The bytes of a message do not form a message; `field` where one can be named."""

    code = "malformed_message"


class UnspeakableCharacter(InvalidRequest):
    """A field holds a control character or half of a surrogate pair."""

    code = "unspeakable_character"


class WrongOrder(InvalidRequest):
    """The message is well formed but has no meaning in the present state."""

    code = "wrong_order"


class TextTooLong(InvalidRequest):
    """More text waits to be spoken than the server keeps for one turn."""

    code = "text_too_long"


class BodyTooLarge(InvalidRequest):
    """The body of an HTTP request is larger than the server takes; `limit` is in bytes."""

    code = "body_too_large"


class Unauthorized(InvalidRequest):
    """No API key, or one that is not known here."""

    code = "unauthorized"


class UnknownCall(InvalidRequest):
    """No call of that id goes on here, or it is another key's."""

    code = "unknown_call"


class UnknownPath(InvalidRequest):
    """Nothing is served under that path."""

    code = "unknown_path"


class WrongMethod(InvalidRequest):
    """The path is served by other methods; `limit` names them."""

    code = "wrong_method"


class DeadlineExceeded(AntiphonError):
    """A limit in seconds was reached; `field` names the limit."""

    code = "deadline_exceeded"


class SlowReader(AntiphonError):
    """The client stopped reading for longer than the server waits."""

    code = "slow_reader"


class NotReady(Overloaded):
    """The engines are still loading, one is being restarted, or the server is about to stop."""

    code = "not_ready"


_AT = re.compile(r" - at `\$\.?([^`]*)`$")
_NAMED = re.compile(r"(?:missing required|unknown) field `([^`]+)`")


def misfit(what: str, complaint: str) -> MalformedMessage:
    """The error for a message that msgspec cannot fit into its type: names the field it names."""
    at, named = _AT.search(complaint), _NAMED.search(complaint)
    path = at.group(1) if at else ""
    field = ".".join(filter(None, (path, named.group(1) if named else "")))
    text = _AT.sub("", complaint)
    return MalformedMessage(f"The {what} is not valid: {text}.", field=field or None)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one error code looks from outside."""

    http_status: int
    close_code: int
    """WebSocket close code where the error ends a connection (RFC 6455 section 7.4.1)."""
    ends_connection: bool = False
    """Whether a WebSocket is closed after the error event, or goes on."""
    openai_type: str = "invalid_request_error"


_OURS = Outcome(500, 1011, openai_type="server_error")

OUTCOMES: dict[str, Outcome] = {
    "internal_error": _OURS,
    "synthesis_failed": _OURS,
    "checkpoint_error": _OURS,
    "watermark_unavailable": _OURS,
    "invalid_configuration": _OURS,
    "invalid_request": Outcome(400, 1008),
    "malformed_message": Outcome(400, 1007),
    "unspeakable_character": Outcome(400, 1007),
    "wrong_order": Outcome(409, 1008),
    "text_too_long": Outcome(413, 1009),
    "body_too_large": Outcome(413, 1009),
    "unknown_voice": Outcome(404, 1008),
    "unknown_call": Outcome(404, 1008),
    "unknown_path": Outcome(404, 1008),
    "wrong_method": Outcome(405, 1008),
    "unsupported": Outcome(400, 1008),
    "consent_required": Outcome(403, 1008),
    "recording_refused": Outcome(422, 1008),
    "unauthorized": Outcome(401, 1008, ends_connection=True, openai_type="authentication_error"),
    "overloaded": Outcome(429, 1013, openai_type="rate_limit_error"),
    "not_ready": Outcome(503, 1013, openai_type="server_error"),
    "deadline_exceeded": Outcome(408, 1008),
    "slow_reader": Outcome(408, 1008, ends_connection=True),
}
"""Every code that can reach a caller. `tests/server/test_errors.py` keeps it complete."""


def outcome(error: AntiphonError) -> Outcome:
    """How `error` looks from outside."""
    return OUTCOMES.get(error.code, _OURS)


def describe(error: AntiphonError) -> dict[str, str | float | None]:
    """The fields every protocol reports of an error: code, message, field, limit, retry time."""
    fields: dict[str, str | float | None] = {
        "code": error.code,
        "message": error.message,
        "field": error.field,
        "limit": error.limit,
    }
    if isinstance(error, Overloaded):
        fields["retry_after_s"] = error.retry_after_s
    return fields
