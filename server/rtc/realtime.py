"""The data channel `oai-events`: OpenAI's Realtime events, as far as speech is concerned.

in    session.update · conversation.item.create (input_text) · response.create
      response.cancel · output_audio_buffer.clear
out   session.created · session.updated · conversation.item.added · response.created
      output_audio_buffer.started · response.output_audio_transcript.delta
      output_audio_buffer.stopped | .cleared · response.done · error
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from antiphon.engine.errors import AntiphonError
from antiphon.engine.interface import FinishReason
from antiphon.server.calls.call import Call
from antiphon.server.calls.leg import Sink
from antiphon.server.engines import Wanted
from antiphon.server.errors import MalformedMessage, describe, outcome
from antiphon.server.json_message import json_object
from antiphon.server.turn_events import (
    Audio,
    Cancel,
    Done,
    Effect,
    EndText,
    Opened,
    Progress,
    PushText,
    Ready,
    Refused,
)

_MOST_TEXT = 20_000
"""Characters of items that wait for their `response.create`."""
_STATUS = {
    FinishReason.CANCELLED.value: "cancelled",
    FinishReason.LENGTH.value: "incomplete",
    FinishReason.TOKEN_LOOP.value: "failed",
    "error": "failed",
}


class RealtimeLeg:
    """One channel (`Listener`, `ChannelProtocol`)."""

    def __init__(self, call: Call, sink: Sink) -> None:
        self._call = call
        self._sink = sink
        self._wanted = call.spec.wanted
        self._text = ""
        self._created = False
        self._audible: set[int] = set()
        self._remove = call.add(self)

    async def receive(self, text: str) -> None:
        """Carry out an event."""
        try:
            await self._carry_out(json_object(text))
        except AntiphonError as error:
            self._error(error)

    def on_effect(self, effect: Effect, messages: Sequence[str]) -> None:
        """Tell what happened in OpenAI's words."""
        match effect:
            case Ready(_, settings):
                kind = "session.updated" if self._created else "session.created"
                self._created = True
                voice = {"output": {"voice": settings.request.voice}}
                session = {"type": "realtime", "id": f"sess_{self._call.id}"}
                self._send(kind, session={**session, "model": settings.model, "audio": voice})
            case Opened(turn):
                self._send("response.created", response=self._response(turn, "in_progress"))
            case Audio(turn) if turn not in self._audible:
                self._audible.add(turn)
                self._send("output_audio_buffer.started", response_id=self._id(turn))
            case Progress(turn, _, words):
                self._send(
                    "response.output_audio_transcript.delta",
                    response_id=self._id(turn),
                    item_id=f"item_{turn}",
                    output_index=0,
                    content_index=0,
                    delta=words,
                )
            case Done(report):
                self._done(report.turn, report.finish_reason)
            case Refused(error):
                self._error(error)

    def on_event(self, event: dict[str, Any]) -> None:
        """The caller's voice is told in OpenAI's words as well; the rest has none."""
        names = {
            "caller.speech_started": "input_audio_buffer.speech_started",
            "caller.speech_stopped": "input_audio_buffer.speech_stopped",
        }
        if name := names.get(event["type"]):
            self._send(name)

    def close(self) -> None:
        """Follow the call no longer."""
        self._remove()

    async def _carry_out(self, event: dict[str, Any]) -> None:
        match event.get("type"):
            case "session.update":
                await self._update(event.get("session"))
            case "conversation.item.create":
                self._add_item(event.get("item"))
            case "response.create":
                text, self._text = self._text, ""
                await self._call.submit(PushText("", text))
                await self._call.submit(EndText(""))
            case "response.cancel" | "output_audio_buffer.clear":
                await self._call.submit(Cancel(""))
            case str(other) if other:
                raise MalformedMessage(
                    f"The event type {other[:60]!r} is not known here.", field="type"
                )
            case _:
                raise MalformedMessage("An event has a type.", field="type")

    async def _update(self, session: Any) -> None:
        if not isinstance(session, dict):
            raise MalformedMessage("session.update has a session.", field="session")
        audio = session.get("audio")
        output = audio.get("output") if isinstance(audio, dict) else None
        voice = output.get("voice") if isinstance(output, dict) else session.get("voice")
        speed = output.get("speed") if isinstance(output, dict) else session.get("speed")
        change: Wanted = self._wanted
        if isinstance(voice, str):
            change = replace(change, voice=voice)
        if isinstance(speed, int | float) and not isinstance(speed, bool):
            change = replace(change, speed=float(speed))
        self._call.settings(change)
        self._wanted = change
        await self._call.configure(change)

    def _add_item(self, item: Any) -> None:
        content = item.get("content") if isinstance(item, dict) else None
        if not isinstance(content, list):
            raise MalformedMessage("An item has content.", field="item.content")
        for part in content:
            if isinstance(part, dict) and part.get("type") in ("input_text", "text", "output_text"):
                text = part.get("text")
                if not isinstance(text, str):
                    raise MalformedMessage("A text part has text.", field="item.content.text")
                if len(self._text) + len(text) > _MOST_TEXT:
                    raise MalformedMessage(
                        f"More than {_MOST_TEXT} characters wait for response.create.",
                        field="item.content.text",
                        limit=_MOST_TEXT,
                    )
                self._text += text
        self._send("conversation.item.added", item={**item, "id": f"item_{uuid.uuid4().hex}"})

    def _done(self, turn: int, reason: str) -> None:
        status = _STATUS.get(reason, "completed")
        if turn in self._audible:
            self._audible.discard(turn)
            ending = "cleared" if status == "cancelled" else "stopped"
            self._send(f"output_audio_buffer.{ending}", response_id=self._id(turn))
        self._send("response.done", response=self._response(turn, status))

    def _response(self, turn: int, status: str) -> dict[str, Any]:
        return {"object": "realtime.response", "id": self._id(turn), "status": status, "output": []}

    def _id(self, turn: int) -> str:
        return f"resp_{self._call.id}_{turn}"

    def _error(self, error: AntiphonError) -> None:
        fields = describe(error)
        self._send(
            "error",
            error={
                "type": outcome(error).openai_type,
                "code": fields["code"],
                "message": fields["message"],
                "param": fields["field"],
            },
        )

    def _send(self, kind: str, **fields: Any) -> None:
        event = {"type": kind, "event_id": f"event_{uuid.uuid4().hex}", **fields}
        self._sink(json.dumps(event, ensure_ascii=False))
