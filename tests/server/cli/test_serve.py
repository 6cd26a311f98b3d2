"""`antiphon serve` names the voice that speaks where the configuration leaves it open."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from antiphon.server.cli.local_server import local_server
from antiphon.server.cli.serve import _tell
from tests.golden import model_dir

VOICE = "tiny_speaker"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(
        "model: tiny\nwatermark: {name: none}\nlog: {level: error}\nengines:\n"
        f"  - {{name: tiny, kind: cosyvoice, model_dir: {model_dir(3)}}}\n"
    )
    return path


def curl_of(told: str) -> tuple[str, dict[str, Any]]:
    """Address and body of the command that was printed."""
    command = told[told.index("curl ") : told.index("WebSocket")].replace("\\\n", " ")
    arguments = shlex.split(command.strip().splitlines()[0])
    return arguments[1], json.loads(arguments[arguments.index("-d") + 1])


def test_the_ready_line_names_the_default_voice_and_it_speaks(config: Path) -> None:
    with local_server(["--config", str(config)], quiet=True) as ready:
        assert (ready["model"], ready["voice"]) == ("tiny", VOICE)
        body = {"voice": ready["voice"], "input": "Hi.", "response_format": "pcm", "seed": 1}
        answer = httpx.post(f"{ready['url']}/v1/audio/speech", json=body, trust_env=False)
        assert answer.status_code == 200


def test_the_command_it_prints_works(config: Path) -> None:
    command = [sys.executable, "-m", "antiphon.server.cli", "serve", "--port", "0"]
    with subprocess.Popen(
        [*command, "--config", str(config), "--exit-with-parent"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if line.startswith("Ctrl-C"):
                break
        told = "".join(lines)
        assert re.search(rf"Serving tiny at \S+, voice {VOICE}\.", told)
        address, body = curl_of(told)
        assert body["voice"] == VOICE
        answer = httpx.post(address, json=body, trust_env=False, timeout=60)
        assert (answer.status_code, answer.content[:4]) == (200, b"RIFF")
        process.stdin.close()
        assert process.wait(60) == 0


def test_a_model_without_voices_says_how_to_make_one(capsys: pytest.CaptureFixture[str]) -> None:
    _tell("http://127.0.0.1:1", "tiny", None)
    told = capsys.readouterr().err
    assert "antiphon voices add" in told
    assert "None" not in told
    assert "curl" not in told
