"""The HTTP part over a real socket."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import numpy as np
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from antiphon.engine.audio_file import decode_audio
from antiphon.server.app import create_app
from antiphon.server.calls.registry import Calls
from antiphon.server.openapi import document
from tests.server.harness import Running, eventually, serving, talking
from tests.server.tone_engine import VOICES, WORD_SAMPLES, speech

KEY = "a-key-of-ours"


@asynccontextmanager
async def calling(server: Running, **options: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.url, trust_env=False, **options) as client:
        yield client


async def test_health_voices_and_metrics() -> None:
    async with serving() as server, calling(server) as http:
        assert (await http.get("/healthz")).json() == {"status": "ok"}
        assert (await http.get("/readyz")).status_code == 200
        voices = (await http.get("/v1/voices")).json()["voices"]
        assert [voice["name"] for voice in voices] == list(VOICES)
        assert [voice["name"] for voice in voices if voice["default"]] == ["low"]
        assert {voice["model"] for voice in voices} == {"tone"}
        assert (await http.get("/v1/audio/voices")).json()["voices"] == voices
        async with talking(server) as client:
            await client.configure()
            await client.say("one two")
            text = (await http.get("/metrics")).text
        for line in (
            "antiphon_connections 1.0",
            'antiphon_sessions{model="tone"} 0.0',
            'antiphon_turns_total{finish_reason="stop",model="tone"} 1.0',
            'antiphon_first_packet_seconds_count{model="tone"} 1.0',
            "antiphon_gaps_total 0.0",
            "antiphon_text_queue_characters 0.0",
            'antiphon_speech_tokens_total{model="tone"} 10.0',
            "antiphon_cancels_total 0.0",
        ):
            assert line in text.splitlines()


async def test_the_server_is_ready_only_when_warm_and_not_draining() -> None:
    async with serving() as server, calling(server) as http:
        server.house.warm = False
        answer = await http.get("/readyz")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")
        assert answer.headers["retry-after"] == "1"
        with pytest.raises(InvalidStatus) as refused:
            async with talking(server):
                pass
        assert refused.value.response.status_code == 503
        assert (await http.get("/healthz")).status_code == 200
        server.house.warm = True
        assert (await http.get("/readyz")).status_code == 200
        server.house.draining = True
        assert (await http.get("/readyz")).status_code == 503


async def test_openapi_describes_every_route_and_no_other() -> None:
    async with serving() as server, calling(server) as http:
        described = (await http.get("/openapi.json")).json()
        routes = {
            (route.path, method)
            for route in create_app(server.house, Calls(server.house)).routes
            for method in getattr(route, "methods", None) or ()
            if method != "HEAD"
        }
    assert {
        (path, method.upper()) for path, methods in described["paths"].items() for method in methods
    } == routes
    assert described == document()


WHERE: list[dict[str, Any]] = [
    {"additional_headers": {"Authorization": f"Bearer {KEY}"}},
    {"additional_headers": {"Authorization": f"Token {KEY}"}},
    {"additional_headers": {"xi-api-key": KEY}},
    {"additional_headers": {"X-API-Key": KEY}},
    {"additional_headers": {"kyutai-api-key": KEY}},
    {"subprotocols": ["token", KEY]},
]


async def test_keys_are_taken_wherever_clients_put_them(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    async with serving({"server.api_keys": [KEY, "another-key"]}) as server:
        for options in WHERE:
            async with talking(server, **options) as client:
                await client.configure()
                assert client.socket.subprotocol == ("token" if "subprotocols" in options else None)
        async with calling(server) as http:
            for name in ("api_key", "authorization", "auth_id"):
                assert (await http.get(f"/v1/voices?{name}={KEY}")).status_code == 200
        for options in ({}, {"additional_headers": {"X-API-Key": "wrong-key-wrong"}}):
            with pytest.raises(InvalidStatus) as refused:
                async with talking(server, **options):
                    pass
            assert refused.value.response.status_code == 401
        async with calling(server) as http:
            assert (await http.get("/healthz")).status_code == 200
            for path in ("/v1/voices", "/metrics", "/openapi.json", "/v1/models"):
                answer = await http.get(path)
                assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorized")
            for path in ("/v1/watermark/detect", "/v1/audio/speech"):
                assert (await http.post(path, content=b"{}")).status_code == 401
    written = capsys.readouterr()
    assert KEY not in written.out + written.err + caplog.text


async def test_pages_of_other_origins_are_refused() -> None:
    async with serving({"server.allowed_origins": ["https://ours.example"]}) as server:
        host = server.url.removeprefix("http://")
        for origin in (f"http://{host}", "https://ours.example"):
            async with talking(server, origin=origin):
                pass
        with pytest.raises(InvalidStatus) as refused:
            async with talking(server, origin="https://theirs.example"):
                pass
        assert refused.value.response.status_code == 401
        async with calling(server, headers={"Origin": "https://theirs.example"}) as http:
            assert (await http.get("/v1/voices")).status_code == 401


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:1", 200),
        ("127.0.0.1", 200),
        ("[::1]:8765", 200),
        ("speech.example", 200),
        ("evil.example:8765", 401),
        ("127.0.0.1.evil.example", 401),
        ("[", 401),
    ],
)
async def test_without_keys_only_names_of_this_machine_are_answered(host: str, status: int) -> None:
    headers = {"Host": host, "X-API-Key": KEY}
    async with (
        serving({"server.allowed_hosts": ["speech.example"]}) as server,
        calling(server, headers=headers) as http,
    ):
        assert (await http.get("/v1/voices")).status_code == status
    async with (
        serving({"server.api_keys": [KEY]}) as server,
        calling(server, headers=headers) as http,
    ):
        assert (await http.get("/v1/voices")).status_code == 200


async def test_a_body_that_does_not_arrive_is_not_waited_for() -> None:
    async def trickle() -> AsyncIterator[bytes]:
        yield b"RIFF"
        await asyncio.sleep(1)
        yield b"WAVE"

    async with serving({"server.limits.request_s": 0.1}) as server, calling(server) as http:
        answer = await http.post("/v1/watermark/detect", content=trickle())
        assert answer.status_code == 408
        assert answer.json()["error"]["code"] == "deadline_exceeded"


def wav(samples: np.ndarray[Any, Any], rate: int = 24_000) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes((samples * 32767).astype("<i2").tobytes())
    return file.getvalue()


async def test_detect_reads_a_file_and_refuses_what_is_none() -> None:
    async with (
        serving({"server.limits.upload_bytes": 200_000}) as server,
        calling(server) as http,
    ):
        answer = await http.post("/v1/watermark/detect", content=wav(speech("low", "one two")))
        found = answer.json()
        assert (answer.status_code, found["watermark"]) == (200, "none")
        assert found["seconds"] == pytest.approx(0.4)
        assert not found["marked"]
        for body in (b"", b"no audio at all", wav(speech("low", "one"))[:30]):
            answer = await http.post("/v1/watermark/detect", content=body)
            assert answer.status_code == 400, body[:10]
            assert answer.json()["error"]["code"] == "invalid_request"

        async def endless() -> AsyncIterator[bytes]:
            for _ in range(1_000):
                yield bytes(1_000)

        for body in (bytes(200_001), endless()):
            answer = await http.post("/v1/watermark/detect", content=body)
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (413, "body_too_large")
            assert (error["field"], error["limit"]) == ("body", 200_000)


async def test_a_recording_or_request_beyond_the_limit_is_refused_with_413() -> None:
    limits = {"server.limits.upload_bytes": 2_048, "server.limits.message_bytes": 1_024}
    async with serving(limits) as server, calling(server) as http:
        form = {"audio": ("a.wav", bytes(2_048))}
        for answer, limit in (
            (await http.post("/v1/audio/convert", files=form), 2_048),
            (await http.post("/v1/audio/speech", json={**BODY, "input": "a" * 1_024}), 1_024),
        ):
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (413, "body_too_large")
            assert (error["field"], error["limit"]) == ("body", limit)


BODY = {"model": "tts-1", "input": "one two three", "voice": "alloy", "response_format": "pcm"}


async def test_openai_speech_as_pcm() -> None:
    async with serving() as server, calling(server) as http:
        async with http.stream("POST", "/v1/audio/speech", json=BODY) as answer:
            assert answer.status_code == 200
            assert answer.headers["content-type"] == "audio/pcm"
            assert answer.headers["x-request-id"]
            body = b"".join([part async for part in answer.aiter_bytes()])
        heard = np.frombuffer(body, "<i2").astype(np.float32) / 32768
        expected = speech("low", "one two three")
        assert np.abs(heard[: len(expected)] - expected).max() < 1.5 / 32768


@pytest.mark.parametrize(
    ("fmt", "kind", "magic"),
    [
        ("mp3", "audio/mpeg", b"\xff"),
        ("opus", "audio/ogg", b"OggS"),
        ("aac", "audio/aac", b"\xff"),
        ("flac", "audio/flac", b"fLaC"),
        ("wav", "audio/wav", b"RIFF"),
    ],
)
async def test_openai_formats(fmt: str, kind: str, magic: bytes) -> None:
    async with serving() as server, calling(server) as http:
        answer = await http.post("/v1/audio/speech", json={**BODY, "response_format": fmt})
        assert (answer.status_code, answer.headers["content-type"]) == (200, kind)
        assert answer.content.startswith(magic)
        audio = decode_audio(answer.content)
        seconds = 3 * WORD_SAMPLES / 24_000
        assert len(audio.samples) / audio.rate == pytest.approx(seconds, abs=0.1)


@pytest.mark.parametrize("rate", [None, 8_000, 16_000, 22_050, 48_000])
@pytest.mark.parametrize("fmt", ["pcm", "wav", "mp3", "aac", "flac"])
async def test_speech_comes_at_the_rate_that_was_asked_for(fmt: str, rate: int | None) -> None:
    async with serving() as server, calling(server) as http:
        body = {**BODY, "response_format": fmt, "sample_rate": rate}
        answer = await http.post("/v1/audio/speech", json=body)
    assert answer.status_code == 200
    rate = rate or 24_000
    seconds = 3 * WORD_SAMPLES / 24_000
    # MP3 and AAC begin with their delay and end with a whole frame.
    frames_s = 3_072 / rate if fmt in ("mp3", "aac") else 0.0
    if fmt == "pcm":
        assert len(answer.content) == pytest.approx(2 * rate * seconds, abs=0.05 * rate)
        return
    audio = decode_audio(answer.content)
    assert audio.rate == rate
    assert seconds - 0.01 <= len(audio.samples) / rate <= seconds + 0.03 + frames_s


async def test_openai_events() -> None:
    async with serving() as server, calling(server) as http:
        answer = await http.post("/v1/audio/speech", json={**BODY, "stream_format": "sse"})
        assert answer.headers["content-type"] == "text/event-stream"
        events = [
            json.loads(line.removeprefix("data: "))
            for line in answer.text.splitlines()
            if line.startswith("data: ")
        ]
        assert [event["type"] for event in events[-1:]] == ["speech.audio.done"]
        assert events[-1]["usage"]["output_tokens"] == 15
        audio = b"".join(base64.b64decode(event["audio"]) for event in events[:-1])
        assert len(audio) == 2 * 3 * WORD_SAMPLES


async def test_openai_events_end_with_an_error_where_speaking_fails() -> None:
    async with serving() as server, calling(server) as http:
        server.engine.behaviour.fail_at_word = 1
        answer = await http.post("/v1/audio/speech", json={**BODY, "stream_format": "sse"})
        events = [
            json.loads(line.removeprefix("data: "))
            for line in answer.text.splitlines()
            if line.startswith("data: ")
        ]
        assert events[0]["type"] == "speech.audio.delta"
        assert events[-1]["type"] == "error"
        assert events[-1]["error"]["code"] == "synthesis_failed"


async def test_openai_voices_have_fixed_meanings() -> None:
    async with serving() as server, calling(server) as http:
        sounds = []
        for voice in ("alloy", "ash", {"id": "mid"}, None):
            answer = await http.post("/v1/audio/speech", json={**BODY, "voice": voice})
            sounds.append(answer.content)
        assert sounds[0] == sounds[3] != sounds[1] == sounds[2]


@pytest.mark.parametrize(
    ("change", "status", "param"),
    [
        ({"voice": "nobody"}, 404, "voice"),
        ({"voice": 5}, 400, "voice"),
        ({"response_format": "midi"}, 400, "response_format"),
        ({"stream_format": "smoke"}, 400, "stream_format"),
        ({"speed": 9}, 400, "speed"),
        ({"input": 5}, 400, "input"),
        ({"input": "a\x00"}, 400, "input"),
        ({"input": "a" * 20_001}, 413, "input"),
        ({"instructions": "whisper"}, 400, "instructions"),
        ({"sample_rate": 23_999}, 400, "sample_rate"),
        ({"sample_rate": "16000"}, 400, "sample_rate"),
        ({"sample_rate": 22_050, "response_format": "opus"}, 400, "sample_rate"),
    ],
)
async def test_openai_refusals(change: dict[str, Any], status: int, param: str) -> None:
    async with serving() as server, calling(server) as http:
        answer = await http.post("/v1/audio/speech", json={**BODY, **change})
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (status, param)
        assert error["type"] == "invalid_request_error"
        assert server.engine.counters.opened == 0


async def test_a_whole_text_beyond_the_limit_is_told_both_numbers() -> None:
    async with serving({"server.limits.text_queue_chars": 100}) as server, calling(server) as http:
        assert (await http.post("/v1/audio/speech", json={**BODY, "input": "a" * 100})).is_success
        answer = await http.post("/v1/audio/speech", json={**BODY, "input": "a" * 101})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["limit"]) == (413, "text_too_long", 100)
        assert error["message"] == "The text has 101 characters; at most 100 are taken."


async def test_openai_refusals_of_bodies_that_are_no_request() -> None:
    async with serving() as server, calling(server) as http:
        for body in (b"", b"{", b"[]", b"\xff"):
            assert (await http.post("/v1/audio/speech", content=body)).status_code == 400
        assert (await http.post("/v1/audio/speech", json={**BODY, "input": " "})).content == b""


async def test_openai_failure_before_audio_is_a_status_and_after_it_a_broken_body() -> None:
    async with serving() as server, calling(server) as http:
        server.engine.behaviour.fail_at_word = 0
        answer = await http.post("/v1/audio/speech", json=BODY)
        assert (answer.status_code, answer.json()["error"]["type"]) == (500, "server_error")
        server.engine.behaviour.fail_at_word = 1
        with pytest.raises(httpx.RemoteProtocolError):
            await http.post("/v1/audio/speech", json=BODY)
        assert server.engine.counters.open_now == 0


async def test_openai_at_full_house_and_after_a_disconnect() -> None:
    async with serving({"server.limits.max_sessions": 1}) as server, calling(server) as http:
        server.engine.behaviour.seconds_per_word = 0.05
        long = {**BODY, "input": "word " * 500}
        async with http.stream("POST", "/v1/audio/speech", json=long) as answer:
            await anext(answer.aiter_bytes())
            refused = await http.post("/v1/audio/speech", json=BODY)
            assert refused.status_code == 429
            assert refused.headers["retry-after"] == "1"
        await eventually(lambda: not server.engine.counters.open_now)
        assert server.engine.counters.words < 100


async def test_what_is_not_served_is_refused_as_json() -> None:
    async with serving() as server, calling(server) as http:
        absent = await http.get("/v1/nothing")
        wrong = await http.delete("/healthz")
    assert absent.status_code == 404
    assert absent.json()["error"]["code"] == "unknown_path"
    assert wrong.status_code == 405
    assert wrong.json()["error"]["code"] == "wrong_method"
    assert wrong.json()["error"]["limit"] == wrong.headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/audio/speech", {"POST"}),
        ("/v1/audio/convert", {"POST"}),
        ("/v1/watermark/detect", {"POST"}),
        ("/v1/models", {"GET", "HEAD"}),
        ("/v1/voices", {"GET", "HEAD", "POST"}),
        ("/v1/voices/ada", {"DELETE", "GET", "HEAD"}),
        ("/v1/calls/some", {"DELETE"}),
        ("/", {"GET", "HEAD"}),
        ("/main.js", {"GET", "HEAD"}),
    ],
)
async def test_a_wrong_method_is_told_every_method_of_the_path(
    path: str, allowed: set[str]
) -> None:
    async with serving() as server, calling(server) as http:
        for method in {"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"} - allowed:
            answer = await http.request(method, path)
            assert (method, answer.status_code) == (method, 405)
            assert answer.headers["allow"] == ", ".join(sorted(allowed))
            if method != "HEAD":
                error = answer.json()["error"]
                assert (error["code"], error["limit"]) == (
                    "wrong_method",
                    answer.headers["allow"],
                )


async def test_the_page_is_served_and_claims_no_other_path() -> None:
    async with serving() as server, calling(server) as http:
        for path in ("/", "/index.html", "/main.js", "/style.css"):
            for method in ("GET", "HEAD"):
                answer = await http.request(method, path)
                assert (path, answer.status_code) == (path, 200)
                assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        for path in (
            "/nothing.js",
            "/v1",
            "/v1/audio/speech/",
            "/v1/audio/speech/stream",
            "/%2e%2e/pyproject.toml",
        ):
            for method in ("GET", "HEAD", "POST", "DELETE"):
                answer = await http.request(method, path)
                assert (path, answer.status_code) == (path, 404)
        with pytest.raises(InvalidStatus) as refused:
            async with connect(server.ws + "/nothing", proxy=None):
                pass
        assert refused.value.response.status_code in (403, 404)


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({}, "malformed_message", "input"),
        ({"input": 5}, "malformed_message", "input"),
        ({"input": "a\0b"}, "unspeakable_character", "input"),
        ({"input": "a", "voice": {"id": 5}}, "malformed_message", "voice"),
    ],
)
async def test_a_refused_request_names_the_field_as_the_caller_does(
    body: dict[str, Any], code: str, field: str
) -> None:
    async with serving() as server, calling(server) as http:
        answer = await http.post("/v1/audio/speech", json=body)
    assert answer.status_code == 400
    assert (answer.json()["error"]["code"], answer.json()["error"]["field"]) == (code, field)


@pytest.mark.parametrize("text", ["", "   "])
async def test_a_text_without_words_is_a_file_without_samples(text: str) -> None:
    async with serving() as server, calling(server) as http:
        answer = await http.post("/v1/audio/speech", json={"input": text, "response_format": "wav"})
    assert answer.status_code == 200
    assert answer.content[:4] == b"RIFF"
    assert len(answer.content) == 44
