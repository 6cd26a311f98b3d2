"""The one exception tree of the project.

    AntiphonError
    ├── InvalidRequest        the caller's fault; has `field` and, where there is one, `limit`
    │   ├── UnknownVoice
    │   ├── UnsupportedFeature    this engine declares that it cannot do it
    │   └── ConsentRequired       the voice may not be used now
    ├── InvalidConfiguration  the operator's fault, found before anything is loaded
    ├── CheckpointError       a model directory that cannot be used, with the file
    ├── WatermarkUnavailable  the configured watermark cannot be loaded
    ├── Overloaded            refused because a limit is reached; has `retry_after_s`
    └── SynthesisFailed       a fault while speaking, never turned into silence

Each carries a stable machine-readable `code`. The server maps codes to HTTP status, WebSocket close
codes and events in one table.
"""

from __future__ import annotations

from typing import Any


class AntiphonError(Exception):
    """Base of all errors raised on purpose. `str(error)` is one readable sentence."""

    code = "internal_error"

    def __init__(
        self, message: str, *, field: str | None = None, limit: str | float | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.limit = limit

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by value, whatever a subclass's constructor asks for."""
        return _rebuilt, (type(self), self.args, self.__dict__)


def _rebuilt(
    kind: type[AntiphonError], arguments: tuple[Any, ...], values: dict[str, Any]
) -> AntiphonError:
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(values)
    return error


class InvalidRequest(AntiphonError):
    """The request is wrong; `field` names the part of it and `limit` the bound it broke."""

    code = "invalid_request"


class UnknownVoice(InvalidRequest):
    """No voice of that name is known here."""

    code = "unknown_voice"


class UnsupportedFeature(InvalidRequest):
    """The engine that was asked declares that it cannot do this."""

    code = "unsupported"


class ConsentRequired(InvalidRequest):
    """The voice's consent is missing, out of scope, expired or revoked."""

    code = "consent_required"


class InvalidConfiguration(AntiphonError):
    """A configuration value or combination that cannot work; `field` is its dotted path."""

    code = "invalid_configuration"


class CheckpointError(AntiphonError):
    """A model directory that cannot be loaded; `field` is the file or key at fault."""

    code = "checkpoint_error"


class WatermarkUnavailable(AntiphonError):
    """The configured watermark cannot be loaded, so nothing may be spoken."""

    code = "watermark_unavailable"


class Overloaded(AntiphonError):
    """A capacity limit is reached; the caller may try again after `retry_after_s` seconds."""

    code = "overloaded"

    def __init__(self, message: str, *, retry_after_s: float, limit: float | None = None) -> None:
        super().__init__(message, limit=limit)
        self.retry_after_s = retry_after_s


class SynthesisFailed(AntiphonError):
    """Speaking failed: a non-finite value, silence where words should be, a dead worker."""

    code = "synthesis_failed"
