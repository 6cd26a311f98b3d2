"""`POST /v1/audio/convert`: recordings in another voice, with everything that holds for speech."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio
from typer.testing import CliRunner

from antiphon.engine.audio_file import decode_audio
from antiphon.engine.cosyvoice import CosyVoiceEngine
from antiphon.engine.watermark.perth import PerthWatermark
from antiphon.server.cli.app import app
from tests import golden
from tests.server.harness import Running, eventually, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Running]:
    mark = PerthWatermark()
    engine = CosyVoiceEngine.load(golden.model_dir(3), mark, name="tiny")
    async with serving(engine=engine, watermark=mark, voice=None) as running:
        yield running


def recording() -> bytes:
    return golden.golden_path("audio/source_16k.wav").read_bytes()


async def ask(
    server: Running, audio: bytes | None = None, *, path: str = "convert", **fields: Any
) -> httpx.Response:
    files = {"audio": ("said.wav", recording() if audio is None else audio)}
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        return await client.post(f"{server.url}/v1/audio/{path}", data=fields, files=files)


@pytest.mark.parametrize(("form", "kind"), [("wav", "audio/wav"), ("mp3", "audio/mpeg")])
async def test_a_recording_comes_back_in_the_voice(server: Running, form: str, kind: str) -> None:
    answer = await ask(server, voice="tiny_speaker", response_format=form)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == kind
    heard = decode_audio(answer.content)
    assert heard.rate == 24_000
    # 35 tokens of 40 ms; MP3 pads.
    assert len(heard.samples) / heard.rate == pytest.approx(1.4, abs=0.1)
    assert float(np.abs(heard.samples).max()) > 0.01
    await eventually(lambda: server.house.resources.sessions.taken == 0)


async def test_it_is_streamed_and_marked(server: Running) -> None:
    long = decode_audio(recording())
    samples = np.tile(long.samples, 6)
    pcm = (np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()
    size = len(pcm)
    header = b"RIFF" + (36 + size).to_bytes(4, "little") + b"WAVEfmt \x10\0\0\0\1\0\1\0"
    header += (16_000).to_bytes(4, "little") + (32_000).to_bytes(4, "little") + b"\2\0\x10\0data"
    file = header + size.to_bytes(4, "little") + pcm
    pieces = []
    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        form = {"files": {"audio": ("said.wav", file)}, "data": {"response_format": "pcm"}}
        async with client.stream("POST", f"{server.url}/v1/audio/convert", **form) as answer:  # type: ignore[arg-type]
            pieces = [piece async for piece in answer.aiter_raw()]
    assert len(pieces) > 3
    heard = np.frombuffer(b"".join(pieces), "<i2").astype(np.float32) / 32768
    assert len(heard) / 24_000 == pytest.approx(len(samples) / 16_000, abs=0.1)
    assert server.house.engines.watermark.detect(heard, 24_000).marked


@pytest.mark.parametrize(
    ("audio", "fields", "status", "field"),
    [
        (b"", {}, 400, "audio"),
        (b"RIFF", {}, 400, "audio"),
        (None, {"voice": "nobody"}, 404, "voice"),
        (None, {"model": "other"}, 400, "model"),
        (None, {"response_format": "ogg"}, 400, "response_format"),
        (None, {"speed": "9"}, 400, "speed"),
        (None, {"speed": "fast"}, 400, "speed"),
        (None, {"instructions": "Softly."}, 400, "instructions"),
    ],
)
async def test_what_cannot_be_is_refused_by_name(
    server: Running, audio: bytes | None, fields: dict[str, str], status: int, field: str
) -> None:
    answer = await ask(server, audio, **fields)
    assert (answer.status_code, answer.json()["error"]["field"]) == (status, field), answer.text


async def test_what_is_no_form_or_has_no_file_is_refused(server: Running) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        url = f"{server.url}/v1/audio/convert"
        plain = await client.post(url, content=recording())
        empty = await client.post(url, files={"other": ("a.wav", recording())})
        short = await ask(server, recording()[: 44 + 3200])
    assert (plain.status_code, plain.json()["error"]["field"]) == (400, "body")
    assert (empty.status_code, empty.json()["error"]["field"]) == (400, "audio")
    assert (short.status_code, short.json()["error"]["field"]) == (400, "audio")


async def test_an_engine_that_cannot_says_so() -> None:
    async with serving() as tones:
        answer = await ask(tones, voice="mid")
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["code"], error["field"]) == ("unsupported", "model")


async def test_the_command_writes_a_file(server: Running, tmp_path: Path) -> None:
    out = tmp_path / "other.wav"
    (tmp_path / "said.wav").write_bytes(recording())
    said = str(tmp_path / "said.wav")
    arguments = ["convert", said, "--voice", "tiny_speaker", "--url", server.url, "--json"]
    result = await asyncio.to_thread(CliRunner().invoke, app, [*arguments, "--output", str(out)])
    assert result.exit_code == 0, result.output
    (line,) = [each for each in result.stdout.splitlines() if each.startswith("{")]
    report = json.loads(line)
    assert report["seconds"] == pytest.approx(1.4, abs=0.03)
    assert len(decode_audio(out).samples) == round(report["seconds"] * 24_000)
    wrong = [*arguments[:3], "nobody", *arguments[4:], "--output", str(tmp_path / "none.wav")]
    result = await asyncio.to_thread(CliRunner().invoke, app, wrong)
    assert result.exit_code == 2
    assert not (tmp_path / "none.wav").exists()
