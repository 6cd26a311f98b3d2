"""A whole call as the telephone hears it: real speech, real watermark, µ-law at 8 kHz."""

from __future__ import annotations

import numpy as np

from antiphon.engine.preset.engine import PresetEngine
from antiphon.server.config import WatermarkSection
from antiphon.server.loading import load_watermark
from tests.server.harness import serving
from tests.server.phone.peer import agent_of, phone_call

FIRST = "Hello, and thank you for calling. Your order was sent this morning."
SECOND = "It should be with you by Friday. Is there anything else?"


async def test_the_mark_is_found_in_the_recording_of_a_call() -> None:
    mark = load_watermark(WatermarkSection(name="perth"))
    engine = PresetEngine(mark)
    options = {"watermark.name": "perth", "calls.phone_gain_db": 3.0}
    async with (
        serving(options, engine=engine, watermark=mark, voice="heart") as server,
        phone_call(server, voice="heart") as phone,
        agent_of(server) as agent,
    ):
        for text in (FIRST, SECOND):
            await agent.send("input.text", text=text)
            await agent.send("input.done")
            assert (await agent.until("session.done"))["finish_reason"] == "stop"
    heard = phone.samples.astype(np.float32)
    assert len(heard) > 5 * 8000
    level_db = 20 * np.log10(np.sqrt(np.mean(heard[np.abs(heard) > 0.01] ** 2)))
    # Active speech on a line: neither faint nor near clipping (ITU-T P.56 levels, loosely).
    assert -26 < level_db < -9
    assert np.abs(heard).max() < 1.0
    found = mark.detect(heard, 8000)
    assert found.marked, found.score
