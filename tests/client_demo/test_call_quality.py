"""Chromium's own statistics over a minute of a call with pauses, bursts and barge-ins."""

from __future__ import annotations

import asyncio

import pytest

from bench.calls_browser import TEXT, watch
from bench.calls_server import server_process
from tests.client_demo.chromium import needs_chromium


@pytest.mark.alone
@needs_chromium
def test_a_minute_without_a_concealed_sample() -> None:
    with server_process("premade", TEXT) as server:
        seen = asyncio.run(watch(server, 60))
    assert seen["turns"] >= 5, seen
    assert seen["barge-ins"] >= 1, seen
    assert seen["seconds"] >= 45, seen
    assert seen["underruns"] == 0, seen
    assert seen["concealed samples"] == 0, seen
    assert seen["target delay ms"] <= 60, seen
    assert seen["sped up %"] <= 1, seen
    assert seen["stopped after ms"] < 100, seen
    assert seen["server silent after ms"] < 200, seen
