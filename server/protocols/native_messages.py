"""Messages of the native protocol (docs/protocol.md) and their typed decoding.

Unknown fields are ignored, so that clients of a newer release can talk to this one; wrong values
are refused with the name of the field.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import Any

import msgspec

from antiphon.engine.errors import InvalidRequest, UnsupportedFeature
from antiphon.server.errors import MalformedMessage, UnspeakableCharacter, misfit

MAX_CONTEXT_CHARS = 128
"""Longest `context_id`: it is kept and echoed, so it is bounded."""


class SessionConfig(msgspec.Struct, tag_field="type", tag="session.config", frozen=True):
    """How the next turns of a context are spoken."""

    context_id: str = ""
    model: str | None = None
    voice: str | None = None
    language: str | None = None
    response_format: str = "pcm"
    sample_rate: int | None = None
    stream_audio: bool = True
    word_timestamps: bool = False
    split_granularity: str = "none"
    speed: float = 1.0
    seed: int | None = None
    instructions: str | None = None
    first_hop: int | None = None
    max_hop: int | None = None
    hop_growth: float | None = None
    lead_s: float | None = None
    ref_audio: Any = None
    ref_text: Any = None


class InputText(msgspec.Struct, tag_field="type", tag="input.text", frozen=True):
    """A piece of text."""

    text: str
    context_id: str = ""


class InputDone(msgspec.Struct, tag_field="type", tag="input.done", frozen=True):
    """The turn's text is complete."""

    context_id: str = ""


class InputCancel(msgspec.Struct, tag_field="type", tag="input.cancel", frozen=True):
    """Barge-in."""

    context_id: str = ""


class InputFlush(msgspec.Struct, tag_field="type", tag="input.flush", frozen=True):
    """Speak what is buffered."""

    context_id: str = ""


class SessionClose(msgspec.Struct, tag_field="type", tag="session.close", frozen=True):
    """End the connection, or one context of it."""

    context_id: str | None = None


Message = SessionConfig | InputText | InputDone | InputCancel | InputFlush | SessionClose
TYPES = (
    "session.config",
    "input.text",
    "input.done",
    "input.cancel",
    "input.flush",
    "session.close",
)

_decoder = msgspec.json.Decoder(Message)
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


def decode(message: str) -> Message:
    """Decode one text message.

    A message whose bytes were not UTF-8 arrives with surrogate escapes (see `transport`).

    Raises:
        MalformedMessage: not UTF-8, not JSON, an unknown type, a missing or wrong field.
        UnspeakableCharacter: half of a surrogate pair.
        UnsupportedFeature: a field of the vllm-omni protocol that is not offered here.
    """
    try:
        raw = message.encode("utf-8")
    except UnicodeEncodeError as error:
        raise MalformedMessage(
            f"The message is not UTF-8 (byte or character {error.start})."
        ) from None
    try:
        decoded = _decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise _invalid(str(error)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise _malformed(message, error) from None
    context = getattr(decoded, "context_id", None) or ""
    if len(context) > MAX_CONTEXT_CHARS or not context.isprintable():
        raise InvalidRequest(
            f"A context_id has at most {MAX_CONTEXT_CHARS} printable characters.",
            field="context_id",
            limit=MAX_CONTEXT_CHARS,
        )
    if isinstance(decoded, SessionConfig):
        for name in ("ref_audio", "ref_text"):
            if getattr(decoded, name) is not None:
                raise UnsupportedFeature(
                    "A reference recording cannot be sent with a request; use a voice by name.",
                    field=name,
                )
    return decoded


def _invalid(complaint: str) -> MalformedMessage:
    error = misfit("message", complaint)
    if error.field != "type":
        return error
    listed = ", ".join(TYPES)
    return MalformedMessage(
        f"The type of a message is one of {listed}.", field="type", limit=listed
    )


def _malformed(message: str, error: Exception) -> InvalidRequest:
    if isinstance(error, RecursionError):
        return MalformedMessage("The message is nested too deeply.")
    if _ESCAPED_SURROGATE.search(message):
        # Python's own reader takes lone surrogates; everything else that fails is not JSON.
        with suppress(ValueError, RecursionError):
            return UnspeakableCharacter(
                "The message holds half of a surrogate pair; send whole characters.",
                field=_field_of_half_a_pair(json.loads(message)),
            )
    return MalformedMessage(f"The message is not JSON: {error}.")


def _field_of_half_a_pair(body: object) -> str | None:
    fields = body.items() if isinstance(body, dict) else ()
    for name, value in fields:
        if _SURROGATE.search(json.dumps(value, ensure_ascii=False)):
            return str(name) if name.isprintable() else None
    return None
