"""Languages, instructions and conversion in the Python API, on tiny checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from antiphon import Engine
from antiphon.engine.errors import InvalidRequest, UnsupportedFeature
from tests import golden


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    config = tmp_path_factory.mktemp("api") / "deployment.yaml"
    config.write_text(
        f"""
engines:
  - {{name: tiny, kind: cosyvoice, model_dir: {golden.model_dir(3)}}}
  - {{name: preset, kind: preset}}
model: tiny
text: {{grammar: none}}
server: {{limits: {{max_sessions: 2}}}}
"""
    )
    with Engine(config) as loaded:
        yield loaded


def test_language_and_instructions_are_taken(engine: Engine) -> None:
    plain = engine.synthesize("Good morning.", seed=1)
    sad = engine.synthesize("Good morning.", seed=1, instructions="Speak sadly.")
    assert len(plain) > 0
    assert len(sad) > 0
    assert len(plain) != len(sad) or not np.array_equal(plain, sad)
    assert len(engine.synthesize("早上好。", seed=1, language="zh")) > 0


def test_whole_and_streamed_texts_are_both_spoken(engine: Engine) -> None:
    pieces = iter(["Good ", "morning."])
    assert len(engine.synthesize(pieces, seed=1)) > 0
    assert len(list(engine.synthesize("Good morning.", seed=1, stream=True))) >= 1


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"model": "preset", "language": "zh"}, "language"),
        ({"model": "preset", "instructions": "Sadly."}, "instructions"),
        ({"language": "xx"}, "language"),
        ({"speed": 5.0}, "speed"),
        ({"model": "other"}, "model"),
    ],
)
def test_impossible_combinations_are_refused(
    engine: Engine, options: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        engine.synthesize("Hello.", **options)
    assert refused.value.field == field


def test_a_recording_is_converted(engine: Engine) -> None:
    source = golden.golden_path("audio/source_16k.wav")
    whole = engine.convert(source, "tiny_speaker")
    assert len(whole) == 35 * 960
    pieces = list(engine.convert(source.read_bytes(), stream=True))
    assert np.array_equal(np.concatenate(pieces), whole)
    with pytest.raises(UnsupportedFeature) as refused:
        engine.convert(source, model="preset")
    assert refused.value.field == "model"
    with pytest.raises(InvalidRequest) as damaged:
        engine.convert(Path("absent.wav"))
    assert damaged.value.field == "audio"
