"""Consent of the person whose voice it is. Without one that covers the use, no audio."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from antiphon.engine.errors import ConsentRequired, InvalidRequest

SPEECH_PURPOSE = "speech"
"""The purpose that a session asks for unless the deployment names another."""
ANY_PURPOSE = "any"
MAX_TEXT = 200
MAX_PURPOSES = 16


@dataclass(frozen=True, slots=True)
class Consent:
    """Who allowed what, when, and until when. Times carry their zone."""

    given_by: str
    """The person who gave it, as the operator can find them again."""
    given_at: datetime
    scope: tuple[str, ...]
    """Purposes that are allowed; `any` allows all."""
    until: datetime | None = None
    """None: until revoked."""

    def __post_init__(self) -> None:
        if not self.given_by.strip() or len(self.given_by) > MAX_TEXT:
            raise InvalidRequest(
                "Consent must name who gave it.", field="consent.given_by", limit=MAX_TEXT
            )
        if not 1 <= len(self.scope) <= MAX_PURPOSES or any(
            not purpose.strip() or len(purpose) > MAX_TEXT for purpose in self.scope
        ):
            raise InvalidRequest(
                "Consent must name 1 to 16 purposes.", field="consent.scope", limit=MAX_PURPOSES
            )
        for name, value in (("given_at", self.given_at), ("until", self.until)):
            if value is not None and value.tzinfo is None:
                raise InvalidRequest("Consent times need a time zone.", field=f"consent.{name}")
        if self.until is not None and self.until <= self.given_at:
            raise InvalidRequest("Consent ends before it was given.", field="consent.until")

    def require(self, purpose: str, now: datetime) -> None:
        """Return if the voice may be used for `purpose` at `now`.

        Raises:
            ConsentRequired: naming the part of the record that forbids it.
        """
        if now < self.given_at:
            raise ConsentRequired(
                "Consent to use this voice is not valid yet.", field="consent.given_at"
            )
        if self.until is not None and now >= self.until:
            raise ConsentRequired(
                f"Consent to use this voice ended on {self.until.date().isoformat()}.",
                field="consent.until",
                limit=self.until.isoformat(),
            )
        if purpose not in self.scope and ANY_PURPOSE not in self.scope:
            raise ConsentRequired(
                f"Consent to use this voice does not cover {purpose!r}.", field="consent.scope"
            )

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "given_by": self.given_by,
            "given_at": self.given_at.astimezone(UTC).isoformat(),
            "scope": list(self.scope),
            "until": None if self.until is None else self.until.astimezone(UTC).isoformat(),
        }

    @classmethod
    def from_json(cls, values: object) -> Consent:
        """Read it back.

        Raises:
            InvalidRequest: a part is missing or of the wrong kind.
        """
        if not isinstance(values, dict) or set(values) - {"given_by", "given_at", "scope", "until"}:
            raise InvalidRequest("The consent record is not readable.", field="consent")
        scope = values.get("scope")
        given_by = values.get("given_by")
        if not isinstance(scope, list) or not all(isinstance(item, str) for item in scope):
            raise InvalidRequest("Consent must name its purposes.", field="consent.scope")
        if not isinstance(given_by, str):
            raise InvalidRequest("Consent must name who gave it.", field="consent.given_by")
        given_at = _time(values.get("given_at"), "given_at")
        until = None if values.get("until") is None else _time(values["until"], "until")
        return cls(given_by, given_at, tuple(scope), until)


def _time(value: object, name: str) -> datetime:
    try:
        return datetime.fromisoformat(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise InvalidRequest(
            "Consent times must be ISO 8601 dates.", field=f"consent.{name}"
        ) from error
