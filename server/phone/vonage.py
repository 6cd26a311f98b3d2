"""Vonage: JSON text for control, binary L16 for audio."""

from __future__ import annotations

import json
import re

from antiphon.server.audio import AudioFormat
from antiphon.server.errors import MalformedMessage
from antiphon.server.json_message import json_object
from antiphon.server.phone.events import Ignored, Media, PhoneEvent, Pressed, Started

_RATE = re.compile(r"audio/l16;\s*rate=(\d{4,6})$", re.IGNORECASE)
_MOST_HEADERS = 32
_OWN_KEYS = frozenset({"event", "content-type"})


class VonageDialect:
    """One call's dialect (`Dialect`)."""

    name = "vonage"
    lead_s = 0.2
    frames_per_message = 1
    has_marks = False
    subprotocol: str | None = None

    def read(self, message: str | bytes) -> PhoneEvent:
        """Understand a message."""
        if isinstance(message, bytes):
            return Media(message)
        body = json_object(message)
        match body.get("event"):
            case "websocket:connected":
                found = _RATE.match(str(body.get("content-type", "")))
                if found is None:
                    raise MalformedMessage(
                        "The content type is audio/l16;rate=…", field="content-type"
                    )
                # Headers that the application set stand beside the event.
                headers = [each for each in body.items() if each[0] not in _OWN_KEYS]
                extra = {str(key)[:200]: str(value)[:200] for key, value in headers[:_MOST_HEADERS]}
                alias = extra.get("uuid", "")
                return Started("", AudioFormat.PCM, int(found[1]), extra, extra, alias)
            case "websocket:dtmf":
                return Pressed(str(body.get("digit", ""))[:1])
        return Ignored()

    def media(self, payload: bytes) -> bytes:
        """Audio travels as it is."""
        return payload

    def mark(self, name: str) -> None:
        """Vonage has no marks."""
        return None

    def clear(self) -> str:
        """The message that drops what was not played."""
        return json.dumps({"action": "clear"})

    def hang_up(self) -> None:
        """Closing the socket ends the call's leg."""
        return None
