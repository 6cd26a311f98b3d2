"""A model directory examined: what is there, what is not, by name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from antiphon.engine.errors import CheckpointError
from antiphon.engine.inspection import inspect_checkpoint
from tests import golden


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_whole_directory_has_no_problems(version: int) -> None:
    report = inspect_checkpoint(golden.speaking_model_dir(version))
    assert (report.generation, report.problems, report.unknown_keys) == (version, [], [])
    assert report.complete
    assert report.voices == ["tiny_speaker"]
    assert [weights.file for weights in report.weights] == ["llm.pt", "flow.pt", "hift.pt"]
    assert all(weights.fits and weights.parameters > 1000 for weights in report.weights)
    sizes = {file.name: file.size for file in report.files}
    assert sizes["llm.pt"] == (golden.speaking_model_dir(version) / "llm.pt").stat().st_size
    assert report.sample_rate == {1: 22050, 2: 24000, 3: 24000}[version]


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    directory = tmp_path / "copied"
    shutil.copytree(golden.speaking_model_dir(3), directory)
    return directory


def test_missing_files_are_named_with_where_they_come_from(copied: Path) -> None:
    (copied / "flow.pt").unlink()
    (copied / "campplus.onnx").unlink()
    report = inspect_checkpoint(copied)
    assert not report.complete
    (problem,) = report.problems
    assert "flow.pt, campplus.onnx missing" in problem
    assert "Fun-CosyVoice3-0.5B" in problem
    assert [weights.file for weights in report.weights] == ["llm.pt", "hift.pt"]


def test_keys_are_named(copied: Path) -> None:
    state = torch.load(copied / "flow.pt", weights_only=True)
    first, second, *_ = state
    state["colour"] = state.pop(first)
    state[second] = torch.zeros(3)
    torch.save(state, copied / "flow.pt")
    report = inspect_checkpoint(copied)
    flow = next(weights for weights in report.weights if weights.file == "flow.pt")
    assert (flow.missing, flow.unexpected) == ((first,), ("colour",))
    assert len(flow.other_shapes) == 1
    assert second in flow.other_shapes[0]
    assert any("flow.pt does not fit" in problem for problem in report.problems)


def test_damaged_files_are_problems_and_not_crashes(copied: Path) -> None:
    (copied / "hift.pt").write_bytes(b"none")
    (copied / "campplus.onnx").write_bytes(b"none")
    (copied / "CosyVoice-BlankEN" / "merges.txt").unlink()
    problems = " ".join(inspect_checkpoint(copied).problems)
    for name in ("hift.pt", "campplus.onnx", "merges.txt"):
        assert name in problems


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError):
        inspect_checkpoint(tmp_path)
