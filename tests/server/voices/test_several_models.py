"""Several models at once: each request is spoken by the one it names, or whose voice it names."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from tests.server.harness import Running, talking
from tests.server.voices.recording import learning
from tests.server.voices.test_voice_routes import body

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    async with learning(tmp_path_factory.mktemp("voices"), versions=(1, 2, 3)) as running:
        yield running


@pytest.mark.parametrize(
    ("model", "voice"),
    [("preset", "heart"), ("tiny1", None), ("tiny2", None), ("tiny3", "tiny_speaker")],
)
async def test_the_named_model_speaks(server: Running, model: str, voice: str | None) -> None:
    async with talking(server) as client:
        started = await client.configure(model=model, seed=1, **({"voice": voice} if voice else {}))
        assert started["model"] == model
        # 22.05 kHz of version 1 included: what is sent has the rate that was asked for.
        heard = await client.say("Good morning, how are you today?")
    assert heard.done["samples"] > 0
    assert len(heard.pcm) >= heard.done["samples"]


async def test_each_model_is_sent_at_the_rate_that_is_asked_for(server: Running) -> None:
    lengths = {}
    for rate in (16_000, 48_000):
        async with talking(server) as client:
            await client.configure(model="tiny1", seed=1, sample_rate=rate)
            heard = await client.say("Good morning, how are you today?")
            lengths[rate] = heard.done["samples"] / rate
    assert lengths[16_000] == pytest.approx(lengths[48_000], abs=1e-3)


async def test_all_models_and_their_voices_are_listed(server: Running) -> None:
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as http:
        models = [entry["id"] for entry in (await http.get("/v1/models")).json()["data"]]
        voices = (await http.get("/v1/voices")).json()["voices"]
    assert models == ["preset", "tiny1", "tiny2", "tiny3"]
    assert [(voice["model"], voice["name"]) for voice in voices] == [
        ("preset", "heart"),
        ("tiny1", "tiny_speaker"),
        ("tiny2", "tiny_speaker"),
        ("tiny3", "tiny_speaker"),
    ]


async def test_a_voice_belongs_to_the_model_it_was_made_for(server: Running) -> None:
    async with httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=60) as http:
        made = await http.post("/v1/voices", json=body(name="two", model="tiny2"))
        assert made.status_code == 201, made.text
        assert made.json()["voice"]["model"] == "tiny2"
    async with talking(server) as client:
        assert (await client.configure(voice="two"))["model"] == "tiny2"
        await client.say("Good morning.")
        for other in ("tiny3", "preset"):
            await client.send("session.config", voice="two", model=other)
            refused = await client.event("error")
            assert (refused["code"], refused["field"]) == ("unsupported", "voice")
            assert "tiny2" in refused["message"]


@pytest.mark.parametrize(
    ("model", "wishes", "field"),
    [
        ("tiny1", {"instructions": "Speak sadly."}, "instructions"),
        ("preset", {"instructions": "Speak sadly."}, "instructions"),
        ("tiny1", {"first_hop": 8}, "first_hop"),
        ("tiny2", {"language": "de"}, "language"),
        ("preset", {"language": "zh"}, "language"),
        ("tiny3", {"speed": 9.0}, "speed"),
        ("tiny3", {"instructions": "x" * 501}, "instructions"),
    ],
)
async def test_what_a_model_cannot_do_is_refused_by_name(
    server: Running, model: str, wishes: dict[str, object], field: str
) -> None:
    async with talking(server) as client:
        await client.send("session.config", model=model, **wishes)
        refused = await client.event("error")
    assert refused["field"] == field


@pytest.mark.parametrize("model", ["tiny2", "tiny3"])
async def test_instructions_and_languages_are_passed_on(server: Running, model: str) -> None:
    async with talking(server) as client:
        await client.configure(model=model, seed=1)
        plain = await client.say("Good morning, how are you today?")
        await client.configure(model=model, seed=1, instructions="Speak sadly.")
        sad = await client.say("Good morning, how are you today?")
        await client.configure(model=model, seed=1, language="zh")
        chinese = await client.say("今天天气很好。")
    assert plain.messages != sad.messages
    assert chinese.done["samples"] > 0
