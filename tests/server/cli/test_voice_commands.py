"""`antiphon voices add|show|remove`, on a configuration's folder and on a running server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from antiphon.server.cli.app import app
from tests import golden
from tests.server.voices.recording import TRANSCRIPT, learning, recording

CONSENT = ("--consent-by", "Ada Example", "--until", "2999-12-31")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(
        f"""
model: tiny
voices: {{folder: {tmp_path / "voices"}}}
watermark: {{name: none}}
engines:
  - {{name: preset, kind: preset}}
  - {{name: tiny, kind: cosyvoice, model_dir: {golden.model_dir(3)}}}
"""
    )
    (tmp_path / "ada.wav").write_bytes(recording())
    return path


def run(*arguments: str | Path, code: int = 0) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["voices", *map(str, arguments), "--json"])
    assert result.exit_code == code, result.output
    answer: dict[str, Any] = json.loads(result.stdout)
    return answer


def test_a_voice_is_added_shown_and_removed(config: Path) -> None:
    file, place = config.parent / "ada.wav", ("--config", config)
    add = ("add", file, "--name", "ada", "--transcript", TRANSCRIPT, *CONSENT, *place)
    made = run(*add)
    assert made["voice"]["model"] == "tiny"
    assert made["report"]["verdict"] in ("good", "warn")
    shown = run("show", "ada", *place)
    assert shown["usable"]
    assert shown["consent"]["given_by"] == "Ada Example"
    assert shown["consent"]["scope"] == ["speech"]
    taken = run(*add, code=2)
    assert taken["error"]["field"] == "name"
    table = CliRunner().invoke(app, ["voices", "show", "ada", "--config", str(config)])
    assert "Ada Example" in table.stdout
    assert run("remove", "ada", *place) == {"removed": "ada"}
    assert run("show", "ada", *place, code=2)["error"]["code"] == "unknown_voice"
    assert run("remove", "ada", *place, code=2)["error"]["code"] == "unknown_voice"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (("--model", "preset"), "model"),
        (("--name", "Not A Name"), "name"),
        (("--name", "tiny_speaker"), "name"),
        (("--until", "2001-01-01"), "consent.until"),
        (("--consent-by", " "), "consent.given_by"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_stored(
    config: Path, options: tuple[str, ...], field: str
) -> None:
    file = config.parent / "ada.wav"
    refused = run("add", file, "--name", "ada", *CONSENT, "--config", config, *options, code=2)
    assert refused["error"]["field"] == field
    assert not list((config.parent / "voices").glob("*.voice"))


def test_without_a_folder_or_a_file_the_command_says_so(config: Path) -> None:
    assert run("show", "ada", code=2)["error"]["field"] == "voices.folder"
    missing = run("add", "/nonexistent.wav", "--name", "ada", *CONSENT, "-c", config, code=2)
    assert missing["error"]["field"] == "audio"


async def test_a_running_server_is_asked(config: Path) -> None:
    file = config.parent / "ada.wav"
    async with learning(config.parent / "voices") as server:
        place = ("--url", server.url)

        async def asked(*arguments: str | Path, code: int = 0) -> dict[str, Any]:
            return await asyncio.to_thread(run, *arguments, *place, code=code)

        made = await asked("add", file, "--name", "ada", *CONSENT)
        assert made["voice"]["mode"] == "cross_lingual"
        assert (await asked("show", "ada"))["usable"]
        assert await asked("remove", "ada") == {"removed": "ada"}
        assert (await asked("show", "ada", code=2))["error"]["code"] == "unknown_voice"
