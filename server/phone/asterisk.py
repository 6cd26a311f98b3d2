"""Asterisk's chan_websocket: control as text (JSON, or plain words), audio as binary."""

from __future__ import annotations

import json
from typing import Any

from antiphon.engine.errors import UnsupportedFeature
from antiphon.server.audio import AudioFormat
from antiphon.server.errors import MalformedMessage
from antiphon.server.json_message import json_object
from antiphon.server.phone.events import (
    Flow,
    Heard,
    Ignored,
    Media,
    PhoneEvent,
    Pressed,
    Started,
)

_FORMATS = {
    "ulaw": (AudioFormat.ULAW, 8000),
    "alaw": (AudioFormat.ALAW, 8000),
    "slin": (AudioFormat.PCM, 8000),
    "slin12": (AudioFormat.PCM, 12000),
    "slin16": (AudioFormat.PCM, 16000),
    "slin24": (AudioFormat.PCM, 24000),
    "slin32": (AudioFormat.PCM, 32000),
    "slin44": (AudioFormat.PCM, 44100),
    "slin48": (AudioFormat.PCM, 48000),
}
MOST_CONTROL_BYTES = 128
"""Asterisk ignores longer control messages."""


class AsteriskDialect:
    """One call's dialect (`Dialect`)."""

    name = "asterisk"
    lead_s = 1.0
    frames_per_message = 1
    has_marks = True
    subprotocol: str | None = "media"

    def __init__(self) -> None:
        self._json = True

    def read(self, message: str | bytes) -> PhoneEvent:
        """Understand a message."""
        if isinstance(message, bytes):
            return Media(message)
        self._json = message.lstrip().startswith("{")
        body = json_object(message) if self._json else _word_fields(message)
        match body.get("event"):
            case "MEDIA_START":
                return self._started(body)
            case "DTMF_END":
                return Pressed(str(body.get("digit", ""))[:1])
            case "MEDIA_XOFF":
                return Flow(room=False)
            case "MEDIA_XON":
                return Flow(room=True)
            case "MEDIA_MARK_PROCESSED":
                return Heard(str(body.get("correlation_id", "")))
        return Ignored()

    def start(self) -> list[str]:
        """What is said before any audio. Buffering makes Asterisk cut frames by itself; without
        it, what is left of a message after its last whole frame is thrown away."""
        return [self._command("ANSWER"), self._command("START_MEDIA_BUFFERING")]

    def media(self, payload: bytes) -> bytes:
        """Audio travels as it is."""
        return payload

    def mark(self, name: str) -> str:
        """The message that asks to be told."""
        return self._command("MARK_MEDIA", name)

    def clear(self) -> str:
        """The message that drops what was not played. It also ends buffering."""
        return self._command("FLUSH_MEDIA")

    def after_clear(self) -> str:
        """Buffering again."""
        return self._command("START_MEDIA_BUFFERING")

    def hang_up(self) -> str:
        """End the call."""
        return self._command("HANGUP")

    def _command(self, command: str, correlation_id: str = "") -> str:
        if self._json:
            fields = {"command": command}
            if correlation_id:
                fields["correlation_id"] = correlation_id
            text = json.dumps(fields, separators=(",", ":"))
        else:
            text = f"{command} {correlation_id}".strip()
        assert len(text) <= MOST_CONTROL_BYTES
        return text

    def _started(self, body: dict[str, Any]) -> Started:
        wanted = str(body.get("format", ""))
        if wanted not in _FORMATS:
            known = ", ".join(_FORMATS)
            raise UnsupportedFeature(
                f"The format {wanted[:40]!r} is not offered to Asterisk; {known} are.",
                field="format",
                limit=known,
            )
        audio, rate = _FORMATS[wanted]
        variables = body.get("channel_variables")
        parameters = {
            str(key).lower()[:200]: str(value)[:200]
            for key, value in (variables.items() if isinstance(variables, dict) else ())
        }
        details: dict[str, str] = {
            key: str(body[key])[:200]
            for key in ("connection_id", "channel", "channel_id")
            if key in body
        }
        alias = details.get("connection_id", "")
        return Started("", audio, rate, parameters, details, alias)


def _word_fields(message: str) -> dict[str, Any]:
    """`MEDIA_START connection_id:… format:slin16 …`"""
    words = message.split()
    if not words:
        raise MalformedMessage("The message is empty.")
    if not message.isascii():
        raise MalformedMessage("Words of Asterisk's are plain ASCII.")
    fields: dict[str, Any] = {"event": words[0]}
    for word in words[1:]:
        key, colon, value = word.partition(":")
        if colon:
            fields[key] = value
    return fields
