"""Weights are tensors and nothing else, whatever the file says it is."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engine.checkpoint.weights import (
    check_state,
    current_name,
    load_module,
    load_state_dict,
)
from antiphon.engine.errors import CheckpointError
from tests import golden


class Payload:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> object:
        return os.mkdir, (str(self.marker),)


def test_a_pickle_with_code_is_refused_and_not_run(tmp_path: Path) -> None:
    marker, path = tmp_path / "ran", tmp_path / "llm.pt"
    for write in (
        lambda: torch.save({"w": Payload(marker)}, path),
        lambda: path.write_bytes(pickle.dumps(Payload(marker))),
    ):
        write()
        with pytest.raises(CheckpointError) as refused:
            load_state_dict(path)
        assert refused.value.field == "llm.pt"
        assert not marker.exists()


def test_a_compressed_archive_is_refused(tmp_path: Path) -> None:
    path, packed = tmp_path / "llm.pt", tmp_path / "packed.pt"
    torch.save({"w": torch.zeros(1000, 1000)}, path)
    with (
        zipfile.ZipFile(path) as source,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for entry in source.infolist():
            target.writestr(entry.filename, source.read(entry))
    assert packed.stat().st_size < 100_000
    with pytest.raises(CheckpointError, match="compressed"):
        load_state_dict(packed)


@pytest.mark.parametrize("content", [[1, 2], {"w": 3}, {1: torch.zeros(1)}, {"w": {"x": 1}}])
def test_what_is_no_state_dict_is_refused(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "llm.pt")
    with pytest.raises(CheckpointError):
        load_state_dict(tmp_path / "llm.pt")


def test_counters_of_training_and_a_generator_prefix_are_taken_off(tmp_path: Path) -> None:
    torch.save({"generator.w": torch.ones(2), "epoch": 3, "step": 4}, tmp_path / "hift.pt")
    state = load_state_dict(tmp_path / "hift.pt", prefix="generator.")
    assert list(state) == ["w"]


def test_the_older_file_form_loads(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2)}, tmp_path / "a.pt", _use_new_zipfile_serialization=False)
    assert load_state_dict(tmp_path / "a.pt")["w"].tolist() == [1, 1]


def test_old_weight_norm_names_become_current_ones() -> None:
    manifest = json.loads(golden.golden_path("manifest/cosyvoice3.json").read_text())
    names: dict[str, str] = manifest["modules"]["hift"]["old_weight_norm_names"]
    assert names
    for current, old in names.items():
        assert current_name(old) == current
        assert current_name(current) == current


def test_differences_are_listed_by_name() -> None:
    state = {"a": torch.zeros(2), "c": torch.zeros(1)}
    with pytest.raises(CheckpointError) as refused:
        check_state(state, {"a": (3,), "b": (1,)}, "flow.pt")
    message = str(refused.value)
    assert "missing: b" in message
    assert "unexpected: c" in message
    assert "a (2,) instead of (3,)" in message


def test_a_module_is_filled_in_its_own_dtype() -> None:
    module = torch.nn.Linear(2, 1)
    load_module(
        module, {"weight": torch.ones(1, 2).half(), "bias": torch.ones(1), "x": torch.ones(1)},
        "flow.pt", ignore=["x"],
    )  # fmt: skip
    assert module.weight.dtype == torch.float32
    assert module.weight.tolist() == [[1, 1]]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_damaged_files_load_or_are_refused(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    torch.save({"w": torch.arange(8)}, folder / "a.pt")
    content = bytearray((folder / "a.pt").read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (folder / "b.pt").write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        load_state_dict(folder / "b.pt")
    except CheckpointError:
        return
