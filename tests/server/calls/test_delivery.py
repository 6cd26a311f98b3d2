"""How far ahead of a listener a turn is computed: calls live, others as capacity allows."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import pytest

from antiphon.engine.interface import SpeechRequest
from antiphon.engine.watermark.none import NoWatermark
from tests.server.harness import Running, serving, talking
from tests.server.phone.peer import agent_of, phone_call
from tests.server.rtc.browser import browser
from tests.server.tone_engine import ToneEngine, ToneSession


class Noting(ToneEngine):
    """Keeps what it was asked for."""

    def __init__(self) -> None:
        super().__init__(NoWatermark())
        self.requests: list[SpeechRequest] = []

    async def open_session(self, request: SpeechRequest) -> ToneSession:
        self.requests.append(request)
        return await super().open_session(request)


async def _spoken(kind: str, server: Running, config: Mapping[str, Any]) -> None:
    """One turn through a door of the server."""
    async with AsyncExitStack() as stack:
        if kind == "websocket":
            client = await stack.enter_async_context(talking(server))
            await client.configure(**config)
            await client.say("one")
            return
        if kind == "browser":
            peer: Any = await stack.enter_async_context(browser(server))
            await peer.until("session.started")
            peer.send("session.config", **config)
            peer.send("input.text", text="one ")
            peer.send("input.done")
        else:
            await stack.enter_async_context(phone_call(server))
            peer = await stack.enter_async_context(agent_of(server))
            await peer.send("session.config", **config)
            await peer.send("input.text", text="one ")
            await peer.send("input.done")
        await peer.until("session.done")


@pytest.mark.parametrize(
    ("kind", "overrides", "config", "lead_s"),
    [
        ("browser", {}, {}, 1.5),
        ("phone", {}, {}, 1.5),
        ("websocket", {}, {}, None),
        ("browser", {"calls.lead_s": 0.5}, {}, 0.5),
        ("phone", {"calls.lead_s": 0.5}, {}, 0.5),
        ("browser", {}, {"lead_s": 3.0}, 3.0),
        ("websocket", {"calls.lead_s": 0.5}, {"lead_s": 2.0}, 2.0),
    ],
)
async def test_calls_are_delivered_live_and_others_as_capacity_allows(
    kind: str, overrides: dict[str, Any], config: dict[str, Any], lead_s: float | None
) -> None:
    engine = Noting()
    async with serving(overrides, engine=engine) as server:
        engine.requests.clear()  # the warm-up's
        await _spoken(kind, server, config)
    assert [request.lead_s for request in engine.requests] == [lead_s]
