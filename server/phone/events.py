"""What phone peers say, in one vocabulary for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from antiphon.server.audio import AudioFormat


@dataclass(frozen=True, slots=True)
class Started:
    """The call's audio begins."""

    stream: str
    """Id that our messages to the peer carry; "" where none is needed."""
    audio: AudioFormat
    sample_rate: int
    parameters: Mapping[str, str] = field(default_factory=dict)
    """What whoever set the call up wants us to know (`voice`, `model`, `language`)."""
    details: Mapping[str, str] = field(default_factory=dict)
    alias: str = ""


@dataclass(frozen=True, slots=True)
class Media:
    """What the caller says."""

    payload: bytes


@dataclass(frozen=True, slots=True)
class Pressed:
    """A key of the telephone."""

    digit: str


@dataclass(frozen=True, slots=True)
class Heard:
    """The peer has played up to a mark of ours."""

    mark: str


@dataclass(frozen=True, slots=True)
class Flow:
    """The peer's queue is full (False) or has room again (True)."""

    room: bool


@dataclass(frozen=True, slots=True)
class Stopped:
    """The call is over."""

    reason: str = "the caller hung up"


@dataclass(frozen=True, slots=True)
class Ignored:
    """Nothing of interest."""


PhoneEvent = Started | Media | Pressed | Heard | Flow | Stopped | Ignored
