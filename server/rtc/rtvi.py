"""The data channel of Pipecat's SmallWebRTC transport: its own signals, and RTVI messages.

in    `ping: …` · {"type":"signalling",…} · RTVI client-ready, client-message, disconnect-bot
      client-message types: tts.speak {text, voice?} · tts.append {text} · tts.end · tts.stop
out   RTVI bot-ready · bot-tts-started · bot-tts-text · bot-tts-stopped · server-message
      server-response · error-response · {"type":"signalling","message":{"type":"peerLeft"}}
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from antiphon.engine.errors import AntiphonError
from antiphon.server.calls.call import Call
from antiphon.server.calls.leg import Sink
from antiphon.server.errors import MalformedMessage, describe
from antiphon.server.json_message import json_object
from antiphon.server.turn_events import (
    Audio,
    Cancel,
    Done,
    Effect,
    EndText,
    Progress,
    PushText,
    Refused,
)

_LABEL = "rtvi-ai"
_VERSION = "1.0.0"


class RtviLeg:
    """One channel (`Listener`, `ChannelProtocol`)."""

    def __init__(self, call: Call, sink: Sink) -> None:
        self._call = call
        self._sink = sink
        self._audible: set[int] = set()
        self._remove = call.add(self)

    async def receive(self, text: str) -> None:
        """Carry out a message."""
        if text.startswith("ping"):
            return
        try:
            message = json_object(text)
        except MalformedMessage:
            return
        if message.get("label") != _LABEL:
            return  # signalling of tracks that we do not look at
        identity = str(message.get("id", ""))
        data = message.get("data")
        try:
            await self._carry_out(message.get("type"), identity, data)
        except AntiphonError as error:
            self._send("error-response", identity, {"error": error.message})

    def on_effect(self, effect: Effect, messages: Sequence[str]) -> None:
        """Tell what happened in RTVI's words."""
        match effect:
            case Audio(turn) if turn not in self._audible:
                self._audible.add(turn)
                self._send("bot-tts-started")
            case Progress(_, _, words):
                self._send("bot-tts-text", data={"text": words})
            case Done(report) if report.turn in self._audible:
                self._audible.discard(report.turn)
                self._send("bot-tts-stopped")
            case Refused(error):
                self._send("server-message", data={"type": "error", **describe(error)})

    def on_event(self, event: dict[str, Any]) -> None:
        """Hand on what happened on the call."""
        if event["type"] == "call.ended":
            self._sink(json.dumps({"type": "signalling", "message": {"type": "peerLeft"}}))
        else:
            self._send("server-message", data=event)

    def close(self) -> None:
        """Follow the call no longer."""
        self._remove()

    async def _carry_out(self, kind: Any, identity: str, data: Any) -> None:
        match kind:
            case "client-ready":
                # Without this answer the client's `connect()` never resolves.
                self._send("bot-ready", identity, {"version": _VERSION})
            case "client-message" if isinstance(data, dict):
                await self._client_message(data.get("t"), data.get("d"))
                self._send("server-response", identity, {"t": data.get("t"), "d": {}})
            case "disconnect-bot":
                self._call.hang_up("hung up by the page")

    async def _client_message(self, what: Any, data: Any) -> None:
        fields = data if isinstance(data, dict) else {}
        match what:
            case "tts.speak" | "tts.append":
                text = fields.get("text")
                if not isinstance(text, str):
                    raise MalformedMessage(f"{what} needs a text.", field="text")
                voice = fields.get("voice")
                if isinstance(voice, str):
                    change = replace(self._call.spec.wanted, voice=voice)
                    self._call.settings(change)
                    await self._call.configure(change)
                await self._call.submit(PushText("", text))
                if what == "tts.speak":
                    await self._call.submit(EndText(""))
            case "tts.end":
                await self._call.submit(EndText(""))
            case "tts.stop":
                await self._call.submit(Cancel(""))
            case _:
                raise MalformedMessage("This message type is not known here.", field="t")

    def _send(self, kind: str, identity: str = "", data: dict[str, Any] | None = None) -> None:
        message: dict[str, Any] = {
            "label": _LABEL,
            "type": kind,
            "id": identity or uuid.uuid4().hex,
        }
        if data is not None:
            message["data"] = data
        self._sink(json.dumps(message, ensure_ascii=False))
