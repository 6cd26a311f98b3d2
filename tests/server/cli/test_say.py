"""`antiphon say` and its kin against servers that run."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from antiphon.engine.audio_file import decode_audio
from antiphon.server.cli.app import app
from tests.server.harness import serving
from tests.server.tone_engine import speech

TEXT = "one two three four five"


@pytest.fixture
def laboratory(tmp_path: Path) -> Path:
    """A configuration without a watermark, so that nothing has to be loaded to look for one."""
    config = tmp_path / "laboratory.yaml"
    config.write_text("watermark: {name: none}\n")
    return config


async def antiphon(*arguments: str | Path) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, app, [str(each) for each in arguments])


def printed(result: Result) -> dict[str, Any]:
    """The one object; the server of this process logs to the same standard output."""
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("{")]
    value: dict[str, Any] = json.loads(line)
    return value


async def test_say_reports_one_object_and_writes_what_was_heard(
    tmp_path: Path, laboratory: Path
) -> None:
    out = tmp_path / "said.wav"
    async with serving() as server:
        result = await antiphon(
            "say", TEXT, "--url", server.url, "--voice", "mid", "--rate", "50",
            "--output", out, "--config", laboratory, "--json",
        )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    report = printed(result)
    assert set(report) == {
        "file", "voice", "sample_rate", "samples", "first_packet_ms", "rtf", "gaps",
        "finish_reason", "watermark_score",
    }  # fmt: skip
    assert report["file"] == str(out)
    assert (report["voice"], report["sample_rate"], report["samples"]) == ("mid", 24000, 24000)
    assert (report["finish_reason"], report["gaps"]) == ("stop", 0)
    assert 0 < report["first_packet_ms"] < 5000
    assert report["watermark_score"] == 0
    heard = decode_audio(out)
    assert heard.rate == 24000
    assert np.abs(heard.samples - speech("mid", TEXT)).max() < 1e-4


@pytest.mark.parametrize(
    ("form", "rate", "written_rate"),
    [
        ("ulaw", 8000, 8000),
        ("opus_raw", 16000, 48000),
        ("opus", 24000, 48000),
        ("mp3", 24000, 24000),
        ("flac", 22050, 22050),
        ("wav", 24000, 24000),
    ],
)
async def test_say_takes_every_form(
    form: str, rate: int, written_rate: int, tmp_path: Path, laboratory: Path
) -> None:
    out = tmp_path / "said.wav"
    async with serving() as server:
        result = await antiphon(
            "say", TEXT, "--url", server.url, "--rate", "0", "--format", form,
            "--sample-rate", str(rate), "--output", out, "--config", laboratory, "--json",
        )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    heard = decode_audio(out)
    assert heard.rate == written_rate
    assert len(heard.samples) / heard.rate == pytest.approx(1.0, abs=0.08)


async def test_say_for_people_is_a_short_table(tmp_path: Path, laboratory: Path) -> None:
    async with serving() as server:
        result = await antiphon(
            "say", "one", "--url", server.url, "--output", tmp_path / "a.wav", "--config",
            laboratory,
        )  # fmt: skip
    assert result.exit_code == 0
    for word in ("first packet", "real-time factor", "gaps", "watermark", "a.wav", "low"):
        assert word in result.stdout


async def test_a_text_without_words_is_said_so(tmp_path: Path, laboratory: Path) -> None:
    async with serving() as server:
        result = await antiphon(
            "say", "  ", "--url", server.url, "--output", tmp_path / "a.wav", "--config",
            laboratory, "--json",
        )  # fmt: skip
    assert result.exit_code == 0
    report = printed(result)
    assert (report["finish_reason"], report["samples"]) == ("empty", 0)
    assert (report["first_packet_ms"], report["watermark_score"]) == (None, None)


async def test_what_the_server_refuses_is_one_sentence(tmp_path: Path, laboratory: Path) -> None:
    out = tmp_path / "a.wav"
    async with serving({"server.api_keys": ["a-long-key"]}) as server:
        arguments = ["--url", server.url, "--output", out, "--config", laboratory]
        result = await antiphon("say", "one", *arguments)
        assert result.exit_code == 2
        result = await antiphon("say", "one", *arguments, "--api-key", "a-long-key")
        assert result.exit_code == 0
        out.unlink()
        result = await antiphon(
            "say", "one", *arguments, "--api-key", "a-long-key", "--voice", "nobody"
        )
        assert result.exit_code == 2
        assert "nobody" in result.stderr
        assert not out.exists()


async def test_voices_are_listed() -> None:
    async with serving({"server.api_keys": ["a-long-key"]}) as server:
        refused = await antiphon("voices", "--url", server.url)
        assert refused.exit_code == 2
        assert "API key" in refused.stderr
        result = await antiphon("voices", "--url", server.url, "--api-key", "a-long-key")
        assert result.exit_code == 0
        assert "high" in result.stdout
        result = await antiphon("voices", "--url", server.url, "--api-key", "a-long-key", "--json")
    names = [voice["name"] for voice in printed(result)["voices"]]
    assert names == ["low", "mid", "high", "top"]


def command(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "antiphon.server.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        **options,
    )


@pytest.mark.slow
def test_a_fresh_machine_speaks_marked_speech(tmp_path: Path) -> None:
    out = tmp_path / "out.wav"
    result = command(
        "say", "Hello there, this is a first sentence.", "--output", out, "--json", cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert report["samples"] > 24000
    assert report["gaps"] == 0
    assert report["watermark_score"] > 0.5
    verdict = json.loads(command("verify", out, "--json").stdout)
    assert verdict["marked"]
    assert verdict["score"] == report["watermark_score"]
    assert verdict["spans"]
    rng = np.random.default_rng(0)
    noise = (rng.normal(0, 3000, 48000)).astype("<i2").tobytes()
    clean = tmp_path / "clean.wav"
    header = out.read_bytes()[:40] + len(noise).to_bytes(4, "little")
    clean.write_bytes(header[:4] + (len(noise) + 36).to_bytes(4, "little") + header[8:] + noise)
    assert not json.loads(command("verify", clean, "--json").stdout)["marked"]


@pytest.mark.slow
def test_a_server_ends_with_whoever_started_it(laboratory: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "antiphon.server.cli", "serve", "--port", "0", "--json",
         "--exit-with-parent", "--config", str(laboratory)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdin is not None
    ready = json.loads(process.stdout.readline())
    assert ready["url"].startswith("http://127.0.0.1:")
    process.stdin.close()
    assert process.wait(60) == 0
    process.stdout.close()
