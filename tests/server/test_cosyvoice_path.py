"""The protocol on a CosyVoice checkpoint: the tiny one with random weights."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import numpy as np
import pytest
import pytest_asyncio

from antiphon.engine.cosyvoice import CosyVoiceEngine
from antiphon.engine.errors import InvalidRequest
from antiphon.engine.hops import LARGEST_HOP, HopSettings
from antiphon.engine.text.whole_stream import MAX_WHOLE_TEXT
from antiphon.engine.watermark.none import NoWatermark
from antiphon.server.engines import EngineSet, Wanted
from tests.golden import model_dir
from tests.server.harness import Running, eventually, serving, talking

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "Good morning. "


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Running]:
    mark = NoWatermark()
    engine = CosyVoiceEngine.load(model_dir(3), mark, name="tiny")
    async with serving(engine=engine, watermark=mark, voice=None) as running:
        yield running


def _tokens(server: Running) -> float:
    registry = server.house.metrics.registry
    return registry.get_sample_value("antiphon_speech_tokens_total", {"model": "tiny"}) or 0.0


@pytest.mark.parametrize("first_hop", [None, 5, 13])
async def test_samples_are_960_for_each_speech_token(
    server: Running, first_hop: int | None
) -> None:
    before = _tokens(server)
    async with talking(server) as client:
        started = await client.configure(seed=3, first_hop=first_hop)
        assert started["model"] == "tiny"
        heard = await client.say(TEXT, pieces=4)
    tokens = _tokens(server) - before
    # Random weights rarely say that the text is spoken.
    assert heard.done["finish_reason"] in ("stop", "length")
    assert heard.done["samples"] == 960 * tokens > 0
    assert heard.done["characters"] == len(TEXT.rstrip())
    assert np.isfinite(heard.pcm).all()


async def test_a_cancel_frees_the_engine_and_the_next_turn_is_as_if_alone(
    server: Running,
) -> None:
    async with talking(server) as client:
        # Later hops are cut by the clock, and the samples hang on where: the turn is one hop.
        await client.configure(seed=4, first_hop=LARGEST_HOP, max_hop=LARGEST_HOP)
        alone = await client.say(TEXT)
        assert len(alone.pcm) < 960 * LARGEST_HOP
        await client.send("input.text", text=TEXT * 20)
        while not isinstance(await client.receive(), bytes):
            pass
        await client.send("input.cancel")
        assert (await client.hear()).done["cancelled"]
        again = await client.say(TEXT)
    assert np.abs(again.pcm - alone.pcm).max() < 2 / 32768
    await eventually(lambda: server.house.resources.sessions.taken == 0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("first_hop", hop) for hop in (0, -3, 4, 201, 10**9)),
        *(("max_hop", hop) for hop in (0, -1, 4, 201)),
        ("first_hop", 8.5),
        ("speed", 2.5),
        ("hop_growth", 0.5),
        ("hop_growth", 4.5),
        ("lead_s", -0.1),
        ("lead_s", 61),
    ],
)
async def test_what_the_model_cannot_do_is_refused(
    server: Running, field: str, value: float
) -> None:
    async with talking(server) as client:
        await client.send("session.config", **{field: value})
        assert (await client.event("error"))["field"] == field


async def test_a_hop_is_held_against_the_deployments_other_one(server: Running) -> None:
    engine = server.engine
    engines = EngineSet(
        {"tiny": engine},
        model="tiny",
        voice=None,
        watermark=NoWatermark(),
        hops={"tiny": HopSettings(first_hop=8, max_hop=25)},
    )
    for wanted, field, limit in [
        (Wanted(first_hop=26), "first_hop", 25),
        (Wanted(max_hop=7), "max_hop", 8),
        (Wanted(first_hop=12, max_hop=11), "first_hop", 11),
    ]:
        with pytest.raises(InvalidRequest) as refused:
            engines.resolve(wanted)
        assert (refused.value.field, refused.value.limit) == (field, limit)
    for wanted, first in [
        (Wanted(), 8),
        (Wanted(first_hop=25), 25),
        (Wanted(max_hop=8), 8),
        (Wanted(first_hop=30, max_hop=30), 30),
    ]:
        assert engines.resolve(wanted).hop_tokens == first


async def test_a_whole_text_meets_the_models_limit_where_the_queues_is_raised() -> None:
    mark = NoWatermark()
    engine = CosyVoiceEngine.load(model_dir(3), mark, name="tiny")
    raised = {"server.limits.text_queue_chars": 200_000}
    async with (
        serving(raised, engine=engine, watermark=mark, voice=None) as server,
        httpx.AsyncClient(base_url=server.url, trust_env=False) as http,
    ):
        body = {"input": "a" * (MAX_WHOLE_TEXT + 1)}
        answer = await http.post("/v1/audio/speech", json=body)
    error = answer.json()["error"]
    assert (error["field"], error["limit"]) == ("input", MAX_WHOLE_TEXT)
    assert answer.status_code == 400
    assert error["message"] == f"A whole text has at most {MAX_WHOLE_TEXT} characters."
