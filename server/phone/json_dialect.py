"""Twilio, Telnyx, Plivo, Exotel: one dialect, told apart by data.

They all send JSON with base64 audio; they differ in names. A `Wording` says where things stand in
what they send, and how what they want looks.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from antiphon.engine.errors import UnsupportedFeature
from antiphon.server.audio import AudioFormat
from antiphon.server.errors import MalformedMessage
from antiphon.server.json_message import json_object
from antiphon.server.phone.events import (
    Heard,
    Ignored,
    Media,
    PhoneEvent,
    Pressed,
    Started,
    Stopped,
)

Path = tuple[str, ...]

_ULAW = (AudioFormat.ULAW, 8000)
_G711 = {
    "audio/x-mulaw": AudioFormat.ULAW,
    "pcmu": AudioFormat.ULAW,
    "audio/x-alaw": AudioFormat.ALAW,
    "pcma": AudioFormat.ALAW,
}
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Wording:
    """How one provider words things. Templates hold `$stream`, `$payload` and `$name`."""

    name: str
    stream: Path
    encoding: Path
    sample_rate: Path
    media: Mapping[str, Any]
    clear: Mapping[str, Any]
    mark: Mapping[str, Any] | None
    call: Path = ()
    """Where the provider's id of the call stands."""
    parameters: Path = ()
    encodings: Mapping[str, AudioFormat] = field(default_factory=lambda: dict(_G711))
    heard_event: str = "mark"
    heard_name: Path = ("mark", "name")
    frames_per_message: int = 1
    lead_s: float = 1.0


TWILIO = Wording(
    name="twilio",
    stream=("streamSid",),
    encoding=("start", "mediaFormat", "encoding"),
    sample_rate=("start", "mediaFormat", "sampleRate"),
    call=("start", "callSid"),
    parameters=("start", "customParameters"),
    media={"event": "media", "streamSid": "$stream", "media": {"payload": "$payload"}},
    clear={"event": "clear", "streamSid": "$stream"},
    mark={"event": "mark", "streamSid": "$stream", "mark": {"name": "$name"}},
)
TELNYX = Wording(
    name="telnyx",
    stream=("stream_id",),
    encoding=("start", "media_format", "encoding"),
    sample_rate=("start", "media_format", "sample_rate"),
    call=("start", "call_control_id"),
    parameters=("start", "custom_parameters"),
    media={"event": "media", "media": {"payload": "$payload"}},
    clear={"event": "clear"},
    mark={"event": "mark", "mark": {"name": "$name"}},
)
PLIVO = Wording(
    name="plivo",
    stream=("start", "streamId"),
    encoding=("start", "mediaFormat", "encoding"),
    sample_rate=("start", "mediaFormat", "sampleRate"),
    call=("start", "callId"),
    media={
        "event": "playAudio",
        "media": {"contentType": "$encoding", "sampleRate": "$rate", "payload": "$payload"},
    },
    clear={"event": "clearAudio", "streamId": "$stream"},
    mark={"event": "checkpoint", "streamId": "$stream", "name": "$name"},
    heard_event="playedStream",
    heard_name=("name",),
)
EXOTEL = Wording(
    name="exotel",
    stream=("stream_sid",),
    encoding=("start", "media_format", "encoding"),
    sample_rate=("start", "media_format", "sample_rate"),
    call=("start", "call_sid"),
    parameters=("start", "custom_parameters"),
    # Whatever it is called there, it is 16-bit PCM.
    encodings={"base64": AudioFormat.PCM, "raw/slin": AudioFormat.PCM, "": AudioFormat.PCM},
    media={"event": "media", "stream_sid": "$stream", "media": {"payload": "$payload"}},
    clear={"event": "clear", "stream_sid": "$stream"},
    mark={"event": "mark", "stream_sid": "$stream", "mark": {"name": "$name"}},
    # Exotel asks for pieces of 100 ms and more.
    frames_per_message=5,
)
WORDINGS: Mapping[str, Wording] = {each.name: each for each in (TWILIO, TELNYX, PLIVO, EXOTEL)}


class JsonDialect:
    """One call's dialect (`Dialect`)."""

    has_marks = True
    subprotocol: str | None = None

    def __init__(self, wording: Wording) -> None:
        self._wording = wording
        self.name = wording.name
        self.lead_s = wording.lead_s
        self.frames_per_message = wording.frames_per_message
        self._fill: dict[str, Any] = {}
        self._media = ("", "")

    def read(self, message: str | bytes) -> PhoneEvent:
        """Understand a message. Events that are not known are ignored: providers add some."""
        if isinstance(message, bytes):
            raise MalformedMessage(f"{self.name} sends text messages only.")
        body = json_object(message)
        match body.get("event"):
            case "media":
                return self._read_media(body)
            case "start":
                return self._read_start(body)
            case "dtmf":
                return Pressed(_text(body, ("dtmf", "digit"))[:1])
            case "stop":
                return Stopped()
            case self._wording.heard_event:
                return Heard(_text(body, self._wording.heard_name))
        return Ignored()

    def media(self, payload: bytes) -> str:
        """The message that carries audio; base64 needs no escaping, so it is set in as it is."""
        before, after = self._media
        return before + base64.b64encode(payload).decode("ascii") + after

    def mark(self, name: str) -> str | None:
        """The message that asks to be told."""
        if self._wording.mark is None:
            return None
        return json.dumps(_filled(self._wording.mark, {**self._fill, "$name": name}))

    def clear(self) -> str:
        """The message that drops what was not played."""
        return json.dumps(_filled(self._wording.clear, self._fill))

    def hang_up(self) -> None:
        """Closing the socket ends the stream."""
        return None

    def _read_start(self, body: dict[str, Any]) -> Started:
        wording = self._wording
        encoding = _text(body, wording.encoding)
        audio = wording.encodings.get(encoding.lower())
        if audio is None:
            known = ", ".join(sorted(name for name in wording.encodings if name))
            raise UnsupportedFeature(
                f"The encoding {encoding[:40]!r} is not offered to {self.name}; {known} are.",
                field="encoding",
                limit=known,
            )
        stated = _find(body, wording.sample_rate)
        try:
            rate = int(stated) if stated is not None else 8000
        except (TypeError, ValueError):
            raise MalformedMessage("The sample rate is not a number.", field="rate") from None
        stream, call = _text(body, wording.stream), _text(body, wording.call)
        self._fill = {"$stream": stream, "$encoding": encoding, "$rate": rate}
        template = json.dumps(_filled(wording.media, self._fill))
        before, _, after = template.partition("$payload")
        self._media = (before, after)
        found = _find(body, wording.parameters)
        parameters = {
            str(key)[:_LONGEST_NAME]: str(value)[:_LONGEST_NAME]
            for key, value in (found.items() if isinstance(found, dict) else ())
        }
        details = {"stream": stream, "call": call}
        return Started(stream, audio, rate, parameters, details, alias=call)

    def _read_media(self, body: dict[str, Any]) -> PhoneEvent:
        media = body.get("media")
        if not isinstance(media, dict):
            raise MalformedMessage("A media message has media.", field="media")
        if media.get("track") in ("outbound", "outbound_track"):
            return Ignored()
        payload = media.get("payload")
        try:
            return Media(base64.b64decode(payload or "", validate=True))
        except (TypeError, ValueError, binascii.Error):
            raise MalformedMessage("The payload is not base64.", field="media.payload") from None


def _find(body: Any, path: Path) -> Any:
    at = body if path else None
    for key in path:
        at = at.get(key) if isinstance(at, dict) else None
    return at


def _text(body: Any, path: Path) -> str:
    found = _find(body, path)
    return str(found)[:_LONGEST_NAME] if isinstance(found, str | int) else ""


def _filled(template: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(template, Mapping):
        return {key: _filled(value, values) for key, value in template.items()}
    return values.get(template, template) if isinstance(template, str) else template
