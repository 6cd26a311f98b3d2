"""docs/calls.md says what is so: its messages are carried out, its events come."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from antiphon.server.calls.call import Call
from antiphon.server.calls.vad import VoiceLevel, VoiceStarted, VoiceStopped
from antiphon.server.openapi import document
from tests.server.harness import serving
from tests.server.phone.peer import agent_of, phone_call

DOCUMENT = (Path(__file__).parents[3] / "docs" / "calls.md").read_text()
_MESSAGE = re.compile(r'`(\{"type":"[^`]+\})`')


def documented(part: str) -> list[dict[str, Any]]:
    """Messages of a part of the document, with its ellipses filled in."""
    text = DOCUMENT.split(part)[1].split("\n\n")[1]
    return [json.loads(found.replace("{…}", "{}")) for found in _MESSAGE.findall(text)]


async def test_every_documented_message_is_carried_out_and_every_event_comes() -> None:
    commands = documented("To the server, besides the native messages")
    events = {message["type"]: message for message in documented("From the server, besides")}
    assert len(commands) == 3
    assert len(events) == 8
    seen: dict[str, dict[str, Any]] = {}
    async with serving() as server, phone_call(server) as phone, agent_of(server) as agent:
        (call,) = server.calls._calls.values()
        for message in commands:
            if message["type"] != "call.hang_up":
                await agent.socket.send(json.dumps(message))
        await phone.send({"event": "dtmf", "streamSid": "MZ1", "dtmf": {"digit": "5"}})
        seen["call.started"] = await agent.until("call.started")
        seen["call.dtmf"] = await agent.until("call.dtmf")
        await agent.send("input.text", text="one two three ")
        await agent.send("input.done")
        seen["progress.ahead"] = await agent.until("progress.ahead")
        seen["audio.played"] = await agent.until("audio.played")
        await agent.until("session.done")
        hear_voice(call)
        for kind in ("caller.level", "caller.speech_started", "caller.speech_stopped"):
            seen[kind] = await agent.until(kind)
        await agent.socket.send(json.dumps({"type": "call.hang_up"}))
        seen["call.ended"] = await agent.until("call.ended")
    assert set(seen) == set(events)
    for kind, example in events.items():
        assert set(seen[kind]) == set(example), kind


def hear_voice(call: Call) -> None:
    for event in (VoiceLevel(-23.4, 0.98), VoiceStarted(), VoiceStopped()):
        call._on_voice(event)


def test_every_documented_path_exists() -> None:
    served = set(document()["paths"])
    sockets = {"/v1/calls/{id}/control", "/v1/twilio", "/v1/telnyx", "/v1/exotel", "/v1/vonage"}
    for method, path in re.findall(r"`(GET|POST|DELETE|PATCH|WS) (/[^`? ]+)", DOCUMENT):
        if method == "WS":
            assert path in sockets | {"/v1/asterisk"}
        else:
            assert path.replace("{id}", "{call_id}").split("?")[0] in served, path
