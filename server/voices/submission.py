"""What a caller sends to have a voice made: JSON with base64, or a form with a file."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from antiphon.engine.errors import ConsentRequired, InvalidRequest
from antiphon.engine.voice.consent import Consent
from antiphon.server.errors import MalformedMessage, misfit
from antiphon.server.forms import is_form, read_form

_YES = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class ConsentBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who allowed what; `given_at` is now where it is not said."""

    given_by: str
    scope: list[str]
    until: str | None = None
    given_at: str | None = None


class VoiceBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The request. `audio` is base64 in JSON."""

    name: str
    audio: str
    consent: ConsentBody | None = None
    transcript: str | None = None
    language: str = ""
    model: str | None = None
    clean_up: bool | None = None
    replace: bool = False


class Submission(msgspec.Struct, frozen=True):
    """A voice to be made."""

    name: str
    audio: bytes
    consent: Consent
    transcript: str | None
    language: str
    model: str | None
    clean_up: bool | None
    replace: bool


_decoder = msgspec.json.Decoder(VoiceBody)


async def read_submission(content_type: str, body: bytes) -> Submission:
    """Read a request's body by its content type.

    Raises:
        MalformedMessage: neither JSON nor a form, or a field of the wrong type.
        ConsentRequired: it says of nobody that they agreed.
        InvalidRequest: a consent that cannot be.
    """
    if is_form(content_type):
        return await _from_form(content_type, body)
    return _from_json(body)


def from_json_values(values: dict[str, Any]) -> Submission:
    """Take the values of a JSON body; raises as `read_submission`."""
    return _from_json(msgspec.json.encode(values))


def _from_json(body: bytes) -> Submission:
    try:
        decoded = _decoder.decode(body)
        audio = base64.b64decode(decoded.audio, validate=True)
    except msgspec.ValidationError as error:
        raise misfit("request", str(error)) from None
    except msgspec.DecodeError as error:
        raise MalformedMessage("The body is neither JSON nor a form.", field="body") from error
    except binascii.Error as error:
        raise MalformedMessage("audio is not base64.", field="audio") from error
    return _submission(decoded, audio)


async def _from_form(content_type: str, body: bytes) -> Submission:
    """Read a form: the fields of the JSON body, `consent_by`, `consent_scope` (comma-separated),
    `consent_until` and `consent_given_at`, and the file `audio`."""
    audio, texts = await read_form(content_type, body, "audio")
    fields = _fields(texts)
    try:
        decoded = msgspec.convert({**fields, "audio": ""}, VoiceBody)
    except msgspec.ValidationError as error:
        raise misfit("request", str(error)) from None
    return _submission(decoded, audio)


def _fields(texts: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """A form's texts as the fields of the JSON body."""
    fields: dict[str, Any] = {}
    consent: dict[str, Any] = {}
    for key, value in texts:
        if key.startswith("consent_"):
            name = key.removeprefix("consent_")
            if value.strip():
                consent["given_by" if name == "by" else name] = value
        elif key in ("clean_up", "replace"):
            if value.strip():
                fields[key] = _yes(key, value)
        elif value or key == "name":
            fields[key] = value
    if consent:
        scope = consent.get("scope", "")
        consent["scope"] = [purpose.strip() for purpose in scope.split(",") if purpose.strip()]
        fields["consent"] = consent
    return fields


def _yes(field: str, value: str) -> bool:
    found = _YES.get(value.strip().lower())
    if found is None:
        raise MalformedMessage(f"{field} is true or false.", field=field)
    return found


def _submission(body: VoiceBody, audio: bytes) -> Submission:
    if body.consent is None:
        raise ConsentRequired(
            "A voice needs the consent of the person whose it is: who gave it, for what, until "
            "when.",
            field="consent",
        )
    return Submission(
        name=body.name,
        audio=audio,
        consent=_consent(body.consent),
        transcript=body.transcript,
        language=body.language,
        model=body.model,
        clean_up=body.clean_up,
        replace=body.replace,
    )


def _consent(said: ConsentBody) -> Consent:
    given_at = datetime.now(UTC) if said.given_at is None else _time(said.given_at, "given_at")
    until = None if said.until is None else _time(said.until, "until")
    return Consent(said.given_by, given_at, tuple(said.scope), until)


def _time(text: str, field: str) -> datetime:
    """Read an ISO 8601 date or time; a bare date is midnight, and without a zone UTC is meant."""
    try:
        read = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidRequest(
            "Consent times must be ISO 8601 dates.", field=f"consent.{field}"
        ) from error
    return read if read.tzinfo is not None else read.replace(tzinfo=UTC)
