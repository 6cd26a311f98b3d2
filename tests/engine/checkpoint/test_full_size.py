"""At published size, from shapes alone, our modules have the published keys."""

from __future__ import annotations

import json

import pytest

from antiphon.engine.inspection import Shapes, _flow_shapes, _hift_shapes, _lm_shapes
from antiphon.engine.speech_lm.qwen2 import UNUSED_KEYS
from bench.full_models import RandomCheckpoint
from tests import golden


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("part", ["llm", "flow", "hift"])
def test_full_size_keys_equal_the_manifest(version: int, part: str) -> None:
    manifest = json.loads(golden.golden_path(f"manifest/cosyvoice{version}.json").read_text())
    keys = manifest["modules"][part]["keys"]
    expected = {key: tuple(entry["shape"]) for key, entry in keys.items()}
    opened = RandomCheckpoint(version)
    make = {"llm": _lm_shapes, "flow": _flow_shapes, "hift": _hift_shapes}[part]
    shapes: Shapes = make(opened)
    unused = UNUSED_KEYS if part == "llm" else frozenset()
    assert shapes == {key: shape for key, shape in expected.items() if key not in unused}
