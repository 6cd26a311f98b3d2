"""What a transport says about a call that begins, and who may follow it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from antiphon.server.audio import AudioFormat
from antiphon.server.calls.playout import FrameFormat
from antiphon.server.engines import Wanted
from antiphon.server.turn_events import Effect


class CallKind(StrEnum):
    """What brings the sound to the listener."""

    BROWSER = "browser"
    PHONE = "phone"


@dataclass(frozen=True, slots=True)
class CallSpec:
    """What a transport says about a call that begins."""

    kind: CallKind
    peer: str
    """Kind of peer: `webrtc`, `pipecat`, `twilio`, `audiosocket`, …"""
    audio: AudioFormat
    sample_rate: int
    frames: FrameFormat
    wanted: Wanted = field(default_factory=Wanted)
    """Voice and model asked for at the start."""
    owner: str = ""
    """Digest of the key that opened it."""
    alias: str = ""
    """Name by which the peer knows the call; it finds the call like its id does."""
    details: dict[str, str] | None = None
    """What the peer says about itself (a call id of the provider's), for `/v1/calls`."""


class Listener(Protocol):
    """Someone who follows a call. Nothing here may wait. Who comes later hears first how the
    call is spoken (`Ready`)."""

    def on_effect(self, effect: Effect, messages: Sequence[str]) -> None:
        """Something the turn machine did has reached the listener; `messages` is its JSON."""

    def on_event(self, event: dict[str, Any]) -> None:
        """Something happened on the call: a key was pressed, the caller spoke, it ended."""
