"""The command itself, as a subprocess: quick to start, and readable when something is wrong."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from antiphon.server.cli.app import app
from antiphon.server.cli.doctor import checkpoint_files, examine
from antiphon.server.config import load_config

GOLDEN = Path(__file__).parents[2] / "data" / "golden" / "tiny-cosyvoice3"


def antiphon(*arguments: str | Path, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "antiphon.server.cli", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def test_help_names_every_command_without_loading_anything_heavy() -> None:
    code = (
        "import sys; sys.argv = ['antiphon', '--help']\n"
        "from antiphon.server.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'av', 'numpy', 'starlette', 'onnxruntime'} & set(sys.modules)\n"
        "print('HEAVY', sorted(heavy))\n"
        "import os; print('OFFLINE', os.environ['HF_HUB_OFFLINE'], os.environ['DO_NOT_TRACK'], "
        "os.environ['VLLM_NO_USAGE_STATS'])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    for command in ("serve", "say", "voices", "verify", "doctor"):
        assert command in result.stdout
    assert "HEAVY []" in result.stdout
    assert "OFFLINE 1 1 1" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("verify", "/nonexistent/file.wav"), "cannot be read"),
        (("say", "hello", "--url", "http://127.0.0.1:9"), "No server answers"),
        (("say", "hello", "--url", "ftp://x"), "not the address of a server"),
        (("say", "hello", "--format", "vorbis"), "not offered"),
        (("say", "hello", "--format", "opus", "--sample-rate", "22050"), "not offered at 22050 Hz"),
        (("say", "hello", "--output", "/nonexistent/out.wav"), "does not exist"),
        (("voices", "--url", "http://127.0.0.1:9"), "No server answers"),
        (("doctor", "--config", "/nonexistent/config.yaml"), "cannot be read"),
        (("serve", "--config", "/nonexistent/config.yaml"), "cannot be read"),
    ],
)
def test_errors_are_one_sentence_and_exit_code_2(arguments: tuple[str, ...], says: str) -> None:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 1

    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 2
    assert says in json.loads(result.stdout)["error"]["message"]


def test_a_real_process_ends_with_2_and_no_traceback() -> None:
    result = antiphon("verify", "/nonexistent/file.wav", "--json")
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert json.loads(result.stdout)["error"]["field"] == "audio"


def test_say_passes_on_why_its_server_did_not_start(tmp_path: Path) -> None:
    config = tmp_path / "wrong.yaml"
    config.write_text("server: {prot: 1}\n")
    out = tmp_path / "out.wav"
    result = CliRunner().invoke(app, ["say", "one", "-c", str(config), "-o", str(out)])
    assert result.exit_code == 2
    assert "server.prot" in result.stderr
    assert not out.exists()


def test_the_doctor_says_what_a_checkpoint_lacks(tmp_path: Path) -> None:
    whole = checkpoint_files(GOLDEN)
    assert whole["complete"]
    assert whole["missing"] == []

    (tmp_path / "cosyvoice3.yaml").touch()
    (tmp_path / "llm.pt").touch()
    partial = checkpoint_files(tmp_path)
    assert not partial["complete"]
    assert "flow (flow.pt)" in partial["missing"]
    assert partial["files"]["speech LM"] == "llm.pt"

    absent = checkpoint_files(tmp_path / "nothing")
    assert not absent["exists"]
    assert not absent["complete"]


def test_the_doctor_looks_into_a_checkpoint(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["doctor", "--model", str(GOLDEN), "--json"])
    found = json.loads(result.stdout)["checkpoint"]
    assert (found["generation"], found["problems"], found["voices"]) == (3, [], ["tiny_speaker"])
    assert {weights["file"] for weights in found["weights"]} == {"llm.pt", "flow.pt", "hift.pt"}
    shown = CliRunner().invoke(app, ["doctor", "--model", str(GOLDEN)]).stdout
    assert "CosyVoice 3" in shown
    assert "llm.pt: 2.8 MiB" in shown

    nothing = CliRunner().invoke(app, ["doctor", "--model", str(tmp_path), "--json"])
    assert any(str(tmp_path) in problem for problem in json.loads(nothing.stdout)["problems"])


@pytest.mark.parametrize("as_json", [False, True])
def test_the_doctor_ends_with_1_where_it_reports_problems(tmp_path: Path, as_json: bool) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "model: tiny\nwatermark: {name: none}\nengines:\n"
        f"  - {{name: tiny, kind: cosyvoice, model_dir: {GOLDEN}}}\n"
    )
    options = ["doctor", "-c", str(config), *(["--json"] if as_json else [])]
    well = CliRunner().invoke(app, options)
    assert well.exit_code == 0, well.stdout
    ill = CliRunner().invoke(app, [*options, "--model", str(tmp_path / "nothing")])
    assert ill.exit_code == 1
    assert "does not exist" in " ".join(ill.stdout.split())
    if as_json:
        assert json.loads(well.stdout)["problems"] == []
        assert len(json.loads(ill.stdout)["problems"]) == 1


def test_parts_that_are_optional_are_no_problems(monkeypatch: pytest.MonkeyPatch) -> None:
    there = importlib.util.find_spec
    absent = {"sounddevice", "aiortc", "vllm", "opuslib"}
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in absent else there(name)
    )
    report = examine(load_config(environment={}, overrides={"watermark.name": "none"}))
    assert not any(report["optional"].values())
    assert report["problems"] == []
