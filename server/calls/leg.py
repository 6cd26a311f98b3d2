"""A leg: someone who drives and follows a call by JSON, over whatever carries the messages.

The messages are those of the native protocol (docs/protocol.md) without the audio, and those that
begin with `call.` and `caller.`:

to the server     call.hang_up · call.audio {enabled} · call.barge_in {enabled}
from the server   call.started · call.dtmf {digit} · call.ended {reason} · audio.played {ms}
                  progress.ahead {text, characters, start_ms, end_ms}
                  caller.level {dbfs, speech} · caller.speech_started · caller.speech_stopped
                  and after call.audio: what the caller says, 16-bit PCM at 16 kHz, binary
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from antiphon.server.calls.call import Call
from antiphon.server.errors import MalformedMessage
from antiphon.server.turn_events import Effect, Refused


class Sink(Protocol):
    """Carries messages away. Never waits; a sink that is full drops audio and ends itself."""

    def __call__(self, message: str | bytes) -> None:
        """Send a message."""


class Leg:
    """One leg of a call (`Listener`). `close` detaches it."""

    def __init__(self, call: Call, sink: Sink) -> None:
        self._call = call
        self._sink = sink
        self._untap: Callable[[], None] | None = None
        spec = call.spec
        self.on_event(
            {
                "type": "call.started",
                "call_id": call.id,
                "kind": spec.kind.value,
                "peer": spec.peer,
                "sample_rate": spec.sample_rate,
                "details": spec.details or {},
            }
        )
        self._remove = call.add(self)

    async def receive(self, text: str) -> None:
        """Carry out a message."""
        kind, enabled = _call_command(text)
        match kind:
            case "call.hang_up":
                self._call.hang_up("hung up by its agent")
            case "call.audio" if enabled is not None:
                self._listen(enabled)
            case "call.barge_in" if enabled is not None:
                self._call.barge_in = enabled
            case "call.audio" | "call.barge_in":
                error = MalformedMessage(f"{kind} needs `enabled`, true or false.", field="enabled")
                await self._call.submit(Refused(error, ""))
            case _:
                await self._call.submit_native(text)

    def on_effect(self, effect: Effect, messages: Sequence[str]) -> None:
        """Hand on what the turn machine said."""
        for message in messages:
            self._sink(message)

    def on_event(self, event: dict[str, Any]) -> None:
        """Hand on what happened."""
        self._sink(json.dumps(event, ensure_ascii=False))

    def close(self) -> None:
        """Follow the call no longer."""
        self._listen(False)
        self._remove()

    def _listen(self, enabled: bool) -> None:
        if enabled and self._untap is None:
            self._untap = self._call.caller.add_tap(self._sink)
        elif not enabled and self._untap is not None:
            self._untap()
            self._untap = None


def _call_command(text: str) -> tuple[str | None, bool | None]:
    """Type and `enabled` of a message that begins with `call.`; (None, None) for all others."""
    # Most messages are pieces of text for the native protocol, which decodes and checks them.
    if '"call.' not in text or len(text) > 1_000:
        return None, None
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return None, None
    if not isinstance(message, dict) or message.get("type") not in (
        "call.hang_up",
        "call.audio",
        "call.barge_in",
    ):
        return None, None
    enabled = message.get("enabled")
    return message["type"], enabled if isinstance(enabled, bool) else None
