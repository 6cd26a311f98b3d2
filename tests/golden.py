"""Reference numbers for tests.

The whole set lies beside the checkout (`../shared/golden`); a subset of it under 10 MB, listed in
`tests/data/golden/SUBSET.md`, lies in the project. Tests ask here and skip, with a reason, when an
array is in neither.
"""

from __future__ import annotations

import importlib.util
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

ROOT = Path(__file__).parent.parent
SHARED = ROOT.parent / "shared" / "golden"
BUNDLED = Path(__file__).parent / "data" / "golden"


def golden_path(relative: str) -> Path:
    """Return a file of the golden set, from the project or from beside it."""
    for base in (BUNDLED, SHARED):
        if (base / relative).exists():
            return base / relative
    pytest.skip(f"golden file {relative} is not in the project's subset and ../shared is absent")


def model_dir(version: int) -> Path:
    """Return the tiny official-layout checkpoint of a generation.

    Of version 2 the project holds the tokenizer alone (`golden_path`), which is no checkpoint.
    """
    return golden_path(f"tiny-cosyvoice{version}/llm.pt").parent


def speaking_model_dir(version: int) -> Path:
    """Return a checkpoint that is to be spoken with; version 1 needs Whisper's tokenizer file."""
    if version == 1 and importlib.util.find_spec("whisper") is None:
        pytest.skip("openai-whisper, whose tokenizer version 1 uses, is not installed")
    return model_dir(version)


@cache
def index(version: int) -> dict[str, Any]:
    """Return the index (shapes, tolerances, notes) of a generation."""
    loaded: dict[str, Any] = json.loads(golden_path(f"v{version}/index.json").read_text())
    return loaded


def notes(version: int) -> dict[str, Any]:
    """Return what the index says that is not an array (schedules, LM call traces)."""
    result: dict[str, Any] = index(version)["notes"]
    return result


def tolerance(version: int, file: str, name: str) -> float:
    """Return the largest absolute difference that still counts as equal."""
    return float(index(version)["arrays"][f"{file}.safetensors"][name]["tol_abs"] or 0.0)


def array(version: int, file: str, name: str) -> torch.Tensor:
    """Return one array, e.g. `array(3, "flow", "offline.mel")`."""
    for base in (BUNDLED, SHARED):
        path = base / f"v{version}" / f"{file}.safetensors"
        if not path.exists():
            continue
        with safe_open(path, "pt") as arrays:
            if name in arrays.keys():  # noqa: SIM118 (not a mapping)
                tensor: torch.Tensor = arrays.get_tensor(name)
                return tensor
    pytest.skip(f"golden v{version}/{file}:{name} is not in the subset and ../shared is absent")


def assert_close(actual: torch.Tensor, version: int, file: str, name: str) -> None:
    """Compare with a golden array at the index's own tolerance."""
    expected = array(version, file, name)
    assert tuple(actual.shape) == tuple(expected.shape), (tuple(actual.shape), expected.shape)
    difference = (actual.detach().double() - expected.double()).abs().max().item()
    assert difference <= tolerance(version, file, name), f"{name} differs by {difference:.3g}"
