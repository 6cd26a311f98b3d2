"""Every mode of every generation through the server: spoken, or refused by name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from tests import golden
from tests.server.harness import Running, talking
from tests.server.voices.recording import learning
from tests.server.voices.test_voice_routes import body

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "Good morning, how are you today?"
SAD = {"instructions": "Speak sadly."}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    """Each generation with a voice that has a transcript, and one that has none."""
    async with learning(tmp_path_factory.mktemp("voices"), versions=(1, 2, 3)) as running:
        async with httpx.AsyncClient(base_url=running.url, trust_env=False, timeout=120) as http:
            for version in (1, 2, 3):
                model = f"tiny{version}"
                for name, transcript in (("told", body()["transcript"]), ("untold", "")):
                    wanted = body(name=f"{name}{version}", model=model, transcript=transcript)
                    made = await http.post("/v1/voices", json=wanted)
                    assert made.status_code == 201, made.text
        yield running


async def over_http(server: Running, **wishes: Any) -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=60) as http:
        asked = {"input": TEXT, "response_format": "pcm", "seed": 1, **wishes}
        return await http.post("/v1/audio/speech", json=asked)


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize(
    ("voice", "wishes", "mode"),
    [
        ("tiny_speaker", {}, "preset"),
        ("told", {}, "zero_shot"),
        ("told", {"language": "en-GB"}, "zero_shot"),
        ("told", {"language": "zh"}, "cross_lingual"),
        ("untold", {}, "cross_lingual"),
        ("untold", {"language": "ja"}, "cross_lingual"),
        ("tiny_speaker", SAD, "instruct"),
        ("told", SAD, "instruct"),
        ("untold", {**SAD, "language": "zh"}, "instruct"),
    ],
)
async def test_modes_are_spoken_or_refused(
    server: Running, version: int, voice: str, wishes: dict[str, str], mode: str
) -> None:
    model = f"tiny{version}"
    name = voice if voice == "tiny_speaker" else f"{voice}{version}"
    answer = await over_http(server, model=model, voice=name, **wishes)
    async with talking(server) as client:
        fields = {"model": model, "voice": name, "seed": 1, **wishes}
        if mode == "instruct" and version == 1:
            # Of the three published models of version 1 only `…-Instruct` follows instructions.
            assert answer.status_code == 400
            assert answer.json()["error"]["field"] == "instructions"
            await client.send("session.config", **fields)
            refused = await client.event("error")
            assert (refused["code"], refused["field"]) == ("unsupported", "instructions")
            return
        await client.configure(**fields)
        streamed = await client.say(TEXT, pieces=3)
    assert answer.status_code == 200, answer.text
    assert len(answer.content) > 0
    assert streamed.done["samples"] > 0
    shown = [v for v in await listed(server) if (v["model"], v["name"]) == (model, name)]
    if not wishes:
        assert shown[0]["mode"] == mode


async def listed(server: Running) -> list[dict[str, Any]]:
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as http:
        voices: list[dict[str, Any]] = (await http.get("/v1/voices")).json()["voices"]
    return voices


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_conversion_uses_recorded_voices(server: Running, version: int) -> None:
    source = golden.golden_path("audio/source_16k.wav").read_bytes()
    async with httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=60) as http:
        heard = {}
        for name in (f"told{version}", f"untold{version}", "tiny_speaker"):
            fields = {"voice": name, "model": f"tiny{version}", "response_format": "pcm"}
            answer = await http.post(
                "/v1/audio/convert", data=fields, files={"audio": ("a.wav", source)}
            )
            assert answer.status_code == 200, answer.text
            heard[name] = answer.content
    lengths = [len(pcm) / 48_000 for pcm in heard.values()]
    assert lengths == pytest.approx([1.4] * 3, abs=0.05)
    # The same recording makes both; another voice is another sound.
    assert heard[f"told{version}"] == heard[f"untold{version}"] != heard["tiny_speaker"]


@pytest.mark.parametrize(
    ("wishes", "status", "field"),
    [
        ({"model": "preset", "language": "zh"}, 400, "language"),
        ({"model": "preset", **SAD}, 400, "instructions"),
        ({"model": "tiny2", "voice": "told3"}, 400, "voice"),
        ({"model": "tiny3", "voice": "told2", "language": "zh"}, 400, "voice"),
        ({"model": "tiny3", "language": "xx"}, 400, "language"),
        ({"model": "tiny3", "instructions": "a\u0000b"}, 400, "instructions"),
        ({"model": "tiny3", "instructions": "x" * 501}, 400, "instructions"),
        ({"model": "tiny3", "speed": 3}, 400, "speed"),
        ({"model": "tiny3", "seed": -1}, 400, "seed"),
    ],
)
async def test_impossible_combinations_are_refused_over_http(
    server: Running, wishes: dict[str, Any], status: int, field: str
) -> None:
    answer = await over_http(server, **wishes)
    assert (answer.status_code, answer.json()["error"]["field"]) == (status, field), answer.text
