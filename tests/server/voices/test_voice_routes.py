"""Voices over HTTP: made, shown, spoken with, withdrawn."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio

from antiphon.server.openapi import document
from tests.engine.test_audio_file import encode
from tests.server.harness import Running, serving, talking
from tests.server.voices.recording import TRANSCRIPT, learning, recording

pytestmark = pytest.mark.asyncio(loop_scope="module")

CONSENT = {"given_by": "Ada Example", "scope": ["speech"], "until": "2999-12-31"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    async with learning(tmp_path_factory.mktemp("voices")) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def http(server: Running) -> AsyncIterator[httpx.AsyncClient]:
    folder = server.house.engines.folder
    assert folder is not None
    for name in folder.store.names():
        folder.remove(name)
    async with httpx.AsyncClient(base_url=server.url, trust_env=False, timeout=60) as client:
        yield client


def body(**changes: Any) -> dict[str, Any]:
    return {
        "name": "ada",
        "audio": base64.b64encode(recording()).decode(),
        "transcript": TRANSCRIPT,
        "language": "en",
        "consent": CONSENT,
        **changes,
    }


async def test_a_recording_becomes_a_voice_that_speaks_until_it_is_removed(
    server: Running, http: httpx.AsyncClient
) -> None:
    made = await http.post("/v1/voices", json=body())
    assert made.status_code == 201, made.text
    voice, report = made.json()["voice"], made.json()["report"]
    assert (voice["name"], voice["model"], voice["mode"]) == ("ada", "tiny3", "zero_shot")
    assert voice["usable"]
    assert report["verdict"] in ("good", "warn")
    assert {finding["measure"] for finding in report["findings"]} >= {"snr_db", "speech_s"}

    shown = (await http.get("/v1/voices/ada")).json()
    assert shown == voice
    assert shown["consent"]["given_by"] == "Ada Example"
    listed = (await http.get("/v1/voices")).json()["voices"]
    assert ("ada", "tiny3") in [(entry["name"], entry["model"]) for entry in listed]

    async with talking(server) as client:
        started = await client.configure(voice="ada", seed=1)
        # The voice says which model is meant.
        assert started["model"] == "tiny3"
        heard = await client.say("Good morning, how are you?")
        assert heard.done["samples"] > 0

        removed = await http.delete("/v1/voices/ada")
        assert removed.json() == {"removed": "ada"}
        await client.send("input.text", text="And again.")
        await client.send("input.done")
        done = await client.hear()
    assert done.of("error")[0]["code"] == "unknown_voice"
    assert not done.messages
    assert (await http.get("/v1/voices/ada")).status_code == 404
    assert (await http.delete("/v1/voices/ada")).status_code == 404


async def test_a_form_with_a_file_makes_the_same_voice(
    server: Running, http: httpx.AsyncClient
) -> None:
    folder = server.house.engines.folder
    assert folder is not None
    await http.post("/v1/voices", json=body())
    fields = {
        "name": "grace",
        "transcript": TRANSCRIPT,
        "language": "en",
        "model": "tiny3",
        "clean_up": "false",
        "consent_by": "Grace Example",
        "consent_scope": "speech, audiobooks",
        "consent_until": "2999-12-31",
    }
    made = await http.post("/v1/voices", data=fields, files={"audio": ("g.wav", recording())})
    assert made.status_code == 201, made.text
    one, other = folder.store.load("ada"), folder.store.load("grace")
    np.testing.assert_array_equal(one.features.tokens, other.features.tokens)
    np.testing.assert_array_equal(one.features.mel, other.features.mel)
    assert other.consent is not None
    assert other.consent.scope == ("speech", "audiobooks")
    assert other.transcript == TRANSCRIPT


@pytest.mark.parametrize(
    ("changes", "status", "field"),
    [
        ({"consent": None}, 403, "consent"),
        ({"consent": {**CONSENT, "given_by": " "}}, 400, "consent.given_by"),
        ({"consent": {**CONSENT, "scope": []}}, 400, "consent.scope"),
        ({"consent": {**CONSENT, "until": "tomorrow"}}, 400, "consent.until"),
        ({"consent": {**CONSENT, "until": "2001-01-01"}}, 400, "consent.until"),
        ({"name": "../ada"}, 400, "name"),
        ({"name": "tiny_speaker"}, 400, "name"),
        ({"audio": "%%"}, 400, "audio"),
        ({"audio": base64.b64encode(b"RIFF none").decode()}, 400, "audio"),
        ({"transcript": 7}, 400, "transcript"),
        ({"transcript": "a\x00b"}, 400, "text"),
        ({"model": "preset"}, 400, "model"),
        ({"model": "none"}, 400, "model"),
        ({"colour": "red"}, 400, "colour"),
    ],
)
async def test_what_cannot_be_a_voice_is_refused_by_name(
    server: Running, http: httpx.AsyncClient, changes: dict[str, Any], status: int, field: str
) -> None:
    answer = await http.post("/v1/voices", json=body(**changes))
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["field"] == field
    folder = server.house.engines.folder
    assert folder is not None
    assert folder.store.names() == []


async def test_a_poor_recording_is_refused_with_its_report(http: httpx.AsyncClient) -> None:
    noise = np.random.default_rng(1).normal(0, 0.1, 24_000 * 5).astype(np.float32)
    file = encode(noise, "wav", "pcm_s16le", 24_000, "mono")
    answer = await http.post(
        "/v1/voices", json=body(audio=base64.b64encode(file).decode(), clean_up=False)
    )
    assert answer.status_code == 422
    refused = answer.json()
    assert refused["error"]["code"] == "recording_refused"
    assert refused["report"]["verdict"] == "refuse"
    assert refused["report"]["messages"]


async def test_a_name_is_given_once_unless_replaced(http: httpx.AsyncClient) -> None:
    assert (await http.post("/v1/voices", json=body())).status_code == 201
    again = await http.post("/v1/voices", json=body())
    assert (again.status_code, again.json()["error"]["field"]) == (400, "name")
    replaced = await http.post("/v1/voices", json=body(replace=True, transcript=None))
    assert replaced.status_code == 201
    assert replaced.json()["voice"]["mode"] == "cross_lingual"


async def test_a_voice_removed_while_it_speaks_falls_silent(
    server: Running, http: httpx.AsyncClient
) -> None:
    assert (await http.post("/v1/voices", json=body())).status_code == 201
    async with talking(server) as client:
        await client.configure(voice="ada", seed=1, max_hop=8)
        await client.send("input.text", text="We walk in the park today, and it is sunny. " * 40)
        while not isinstance(await client.receive(), bytes):
            pass
        assert (await http.delete("/v1/voices/ada")).status_code == 200
        heard = await client.hear()
    assert [event["code"] for event in heard.of("error")] == ["consent_required"]
    assert heard.done["finish_reason"] == "error"


async def test_the_checkpoints_own_voices_are_shown_and_stay(http: httpx.AsyncClient) -> None:
    shown = (await http.get("/v1/voices/tiny_speaker")).json()
    assert (shown["mode"], shown["usable"]) == ("preset", True)
    kept = await http.delete("/v1/voices/tiny_speaker")
    assert (kept.status_code, kept.json()["error"]["field"]) == (400, "name")


async def test_a_voice_by_hand_without_consent_is_shown_and_not_spoken(
    server: Running, http: httpx.AsyncClient
) -> None:
    await http.post("/v1/voices", json=body())
    folder = server.house.engines.folder
    assert folder is not None
    content = folder.store.load("ada")
    folder.store.add(replace(content, consent=None), replace=True)
    shown = (await http.get("/v1/voices/ada")).json()
    assert not shown["usable"]
    assert "consent" in shown["reason"]
    async with talking(server) as client:
        await client.send("session.config", voice="ada")
        assert (await client.event("error"))["code"] == "consent_required"


async def test_without_a_folder_there_are_no_such_voices() -> None:
    async with serving() as plain, httpx.AsyncClient(base_url=plain.url, trust_env=False) as http:
        answer = await http.post("/v1/voices", json=body())
        assert (answer.status_code, answer.json()["error"]["field"]) == (400, "voices.folder")
        assert (await http.get("/v1/voices/ada")).status_code == 404
        assert (await http.delete("/v1/voices/ada")).status_code == 404


async def test_every_route_asks_for_the_key() -> None:
    keys = {"server.api_keys": ["a-key-of-ours"]}
    async with (
        serving(keys) as guarded,
        httpx.AsyncClient(base_url=guarded.url, trust_env=False) as http,
    ):
        for method, path in (("POST", ""), ("GET", "/ada"), ("DELETE", "/ada")):
            assert (await http.request(method, f"/v1/voices{path}")).status_code == 401


async def test_an_upload_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    async with (
        learning(tmp_path, overrides={"server.limits.upload_bytes": 2048}) as small,
        httpx.AsyncClient(base_url=small.url, trust_env=False) as http,
    ):
        answer = await http.post("/v1/voices", json=body())
        assert answer.status_code == 413
        assert answer.json()["error"]["code"] == "body_too_large"
        assert answer.json()["error"]["limit"] == 2048
        assert small.house.engines.folder is not None
        assert small.house.engines.folder.store.names() == []


async def test_the_routes_are_described() -> None:
    paths = document()["paths"]
    assert set(paths["/v1/voices"]) == {"get", "post"}
    assert set(paths["/v1/voices/{name}"]) == {"get", "delete"}
    assert "422" in paths["/v1/voices"]["post"]["responses"]
