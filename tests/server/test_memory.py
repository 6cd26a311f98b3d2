"""What the models take is worked out and refused before anything is loaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from antiphon.engine.checkpoint import open_checkpoint
from antiphon.engine.errors import InvalidConfiguration
from antiphon.engine.memory import CARDS_GIB, ModelMemory, model_memory, refuse_what_cannot_fit
from antiphon.engine.speech_lm import vllm_settings
from antiphon.engine.speech_lm.loader import load_speech_lm
from antiphon.engine.speech_lm.settings import LMSettings
from antiphon.server.cli.app import app
from antiphon.server.config import load_config
from antiphon.server.loading import load_engines
from antiphon.server.memory import models_memory
from bench.full_models import RandomCheckpoint
from tests.golden import model_dir
from tests.server.cli.test_command_line import antiphon


@pytest.fixture
def weightless(tmp_path: Path) -> Path:
    """A model directory in which nothing can be loaded, because only its descriptions are there."""
    directory = tmp_path / "weightless"
    (directory / "CosyVoice-BlankEN").mkdir(parents=True)
    for name in ("cosyvoice3.yaml", "CosyVoice-BlankEN/config.json"):
        shutil.copy(model_dir(3) / name, directory / name)
    return directory


def config_file(directory: Path, folder: Path, more: str = "", lm: str = "{}") -> Path:
    path = folder / "config.yaml"
    path.write_text(
        f"model: big\nwatermark: {{name: none}}\n{more}\nengines:\n"
        f"  - {{name: big, kind: cosyvoice, model_dir: {directory}, lm: {lm}}}\n"
    )
    return path


@pytest.mark.parametrize(
    ("more", "lm", "says"),
    [
        ("memory_gib: 0.5", "{}", "there are 0.50"),
        ("", "{backend: vllm, kv_gib: 4000}", "need 400"),
        ("memory_gib: 3", "{backend: vllm, kv_gib: 2.5}", "keys and values 2.50"),
    ],
)
def test_what_cannot_fit_is_refused_before_anything_is_loaded(
    weightless: Path, tmp_path: Path, more: str, lm: str, says: str
) -> None:
    path = config_file(weightless, tmp_path, more, lm)
    with pytest.raises(InvalidConfiguration, match=says) as refused:
        load_engines(load_config(path, environment={}))
    assert refused.value.field == "memory_gib"
    result = CliRunner().invoke(app, ["doctor", "--config", str(path)])
    assert result.exit_code == 1
    assert says in " ".join(result.stdout.split())


def test_serve_says_the_numbers_in_one_sentence_and_ends(weightless: Path, tmp_path: Path) -> None:
    path = config_file(weightless, tmp_path, "memory_gib: 0.5\nlog: {level: error}")
    result = antiphon("serve", "--config", str(path))
    assert result.returncode == 2
    (sentence,) = result.stderr.strip().splitlines()
    assert "there are 0.50" in sentence


def test_a_budget_bounds_the_torch_backend_too(tmp_path: Path) -> None:
    few = "server: {limits: {max_sessions: 4}}"
    generous = load_config(config_file(model_dir(3), tmp_path, few), environment={})
    tight = load_config(config_file(model_dir(3), tmp_path, few, "{kv_gib: 0.001}"), environment={})
    kv = models_memory(tight)["big"].kv
    assert 0.0008 < kv <= 0.001 < models_memory(generous)["big"].kv
    none = config_file(model_dir(3), tmp_path, few, "{kv_gib: 0.0001}")
    with pytest.raises(InvalidConfiguration, match="256 are needed"):
        load_engines(load_config(none, environment={}))


def test_the_doctor_prints_a_table_for_usual_cards(tmp_path: Path) -> None:
    path = config_file(model_dir(3), tmp_path)
    found = json.loads(CliRunner().invoke(app, ["doctor", "-c", str(path), "--json"]).stdout)
    memory = found["memory"]
    assert memory["problem"] is None
    assert list(memory["left_on_cards_gib"]) == [str(card) for card in CARDS_GIB]
    for card, left in memory["left_on_cards_gib"].items():
        parts = memory["on_cards"][card]["big"]
        taken = sum(parts[part] for part in ("weights", "kv", "acoustic", "runtime"))
        assert left == pytest.approx(int(card) - taken, abs=0.02)
        assert 0 < parts["session"] < parts["acoustic"]
    shown = CliRunner().invoke(app, ["doctor", "-c", str(path)]).stdout
    for words in ("weights", "KV of the speech LM", "acoustic caches", "left", "80"):
        assert words in shown


def test_a_published_model_fits_beside_others_on_a_small_card() -> None:
    checkpoint = RandomCheckpoint(3)
    on_vllm = model_memory(checkpoint, LMSettings("vllm", kv_gib=1.0), max_sessions=32, on_gpu=True)
    on_torch = model_memory(checkpoint, LMSettings(), max_sessions=32, on_gpu=True)
    assert on_vllm.kv == 1.0
    # 32 sessions of 2048 ids in 24 layers of 2 heads of 64, keys and values, 4 bytes each.
    assert on_torch.kv == pytest.approx(32 * 2048 * 24 * 2 * 64 * 2 * 4 / 2**30)
    assert on_vllm.weights < on_torch.weights
    refuse_what_cannot_fit({"cosyvoice": on_vllm}, 8)
    with pytest.raises(InvalidConfiguration) as refused:
        refuse_what_cannot_fit({"a": ModelMemory(4, 1, 1, 1), "b": on_vllm}, 8)
    assert refused.value.limit == 8
    assert "b: weights" in refused.value.message


@pytest.mark.parametrize(
    ("version", "message"), [(None, "not installed; install the extra"), ("0.20.1", "supported")]
)
def test_a_missing_or_old_vllm_is_one_sentence_before_anything_is_loaded(
    version: str | None,
    message: str,
    weightless: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def find(name: str) -> str:
        if version is None:
            raise vllm_settings.importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(vllm_settings.importlib.metadata, "version", find)
    path = config_file(weightless, tmp_path, lm="{backend: vllm}")
    with pytest.raises(InvalidConfiguration, match=message) as refused:
        load_engines(load_config(path, environment={}))
    assert refused.value.field == "lm.backend"


@pytest.mark.parametrize(
    ("lm", "field"),
    [
        ("{backend: other}", "backend"),
        ("{block_size: 20, backend: vllm}", "block_size"),
        ("{block_size: 32}", "block_size"),
        ("{isolate_callers: true}", "isolate_callers"),
        ("{kv_gib: 0}", "kv_gib"),
        ("{kv_gb: 1}", "kv_gb"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(tmp_path: Path, lm: str, field: str) -> None:
    with pytest.raises(InvalidConfiguration) as refused:
        load_config(config_file(model_dir(3), tmp_path, lm=lm), environment={})
    assert refused.value.field == f"engines.0.lm.{field}"


def test_blocks_have_a_size_that_kernels_take() -> None:
    with pytest.raises(InvalidConfiguration, match="multiple of 32"):
        load_speech_lm(
            open_checkpoint(model_dir(3)), LMSettings("vllm", block_size=48), max_sessions=1
        )


def test_version_1_has_no_place_in_vllm() -> None:
    with pytest.raises(InvalidConfiguration, match="torch backend alone"):
        load_speech_lm(open_checkpoint(model_dir(1)), LMSettings("vllm"), max_sessions=1)
