"""Files that once got past a reader, found by `bench.fuzz`: each is refused now, and at once."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import pytest

from bench.fuzz import Target, attempt, mutated, targets
from tests import golden

CORPUS = Path(__file__).parent / "data" / "fuzz"


@cache
def readers() -> dict[str, Target]:
    return targets(golden.model_dir(3))


@pytest.mark.parametrize("file", sorted(path.name for path in CORPUS.glob("*.bin")))
def test_what_failed_once_is_refused(file: str, tmp_path: Path) -> None:
    target = readers()[file.rpartition("-")[0].replace("_", " ")]
    outcome = attempt(target, (CORPUS / file).read_bytes(), tmp_path)
    assert (outcome.loaded, outcome.failure) == (False, "")


@pytest.mark.parametrize("name", list(readers()))
def test_damaged_files_load_or_are_refused(name: str, tmp_path: Path) -> None:
    target, chance = readers()[name], random.Random(name)
    assert all(attempt(target, seed, tmp_path).loaded for seed in target.seeds)
    for _ in range(20):
        data = mutated(chance.choice(target.seeds), target.seeds, chance)
        assert attempt(target, data, tmp_path).failure == ""


def test_a_reader_that_raises_something_else_is_a_failure(tmp_path: Path) -> None:
    def broken(path: Path) -> object:
        return {}[path.read_bytes()]

    assert attempt(Target("x", "x", broken), b"", tmp_path).failure == "KeyError"
