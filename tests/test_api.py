"""The Python API on the preset engine and the real watermark."""

from __future__ import annotations

import runpy
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from antiphon import Engine
from antiphon.engine.errors import InvalidRequest, UnknownVoice

EXAMPLE = Path(__file__).parent.parent / "client_demo" / "synthesize.py"


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine() as loaded:
        yield loaded


def test_streamed_and_whole_are_the_same_samples(engine: Engine) -> None:
    text = "Hello there. This is a test of the streaming interface."
    whole = engine.synthesize(text, seed=1)
    parts = list(engine.synthesize(text, seed=1, stream=True))
    assert len(parts) > 1
    assert whole.dtype == np.float32
    assert np.array_equal(np.concatenate(parts), whole)
    assert len(whole) > engine.sample_rate


def test_text_may_come_from_an_iterator_while_it_is_spoken(engine: Engine) -> None:
    text = "Good morning, this is the first clause, and here is another one."
    written: list[str] = []

    def pieces() -> Iterator[str]:
        for word in text.split(" "):
            written.append(word)
            yield word + " "
            time.sleep(0.02)

    heard_after = 0
    for _ in engine.synthesize(pieces(), stream=True):
        heard_after = heard_after or len(written)
    assert heard_after < len(written)


def test_dropping_the_iterator_leaves_the_engine_usable(engine: Engine) -> None:
    stream = engine.synthesize("One sentence. " * 50, stream=True)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert len(engine.synthesize("Still here."))


def test_errors_come_to_the_caller(engine: Engine) -> None:
    with pytest.raises(UnknownVoice):
        engine.synthesize("Hello.", "nobody")
    with pytest.raises(InvalidRequest):
        engine.synthesize("a\x00b")

    def failing() -> Iterator[str]:
        yield "Hello there, "
        raise RuntimeError("the model went away")

    with pytest.raises(RuntimeError, match="went away"):
        engine.synthesize(failing())


def test_nothing_to_speak_is_no_audio(engine: Engine) -> None:
    assert len(engine.synthesize("...")) == 0


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert (tmp_path / "hello.wav").stat().st_size > 48_000
