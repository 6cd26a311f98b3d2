"""Clean recordings of many voices, made here."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from antiphon.engine.audio_file import decode_audio
from bench.defects import RATE, Samples
from bench.speech import Speaker, random_warp, sentences

CLEAN = 20

NANO = Path(__file__).parents[4] / "shared" / "nano"


def nano_file(name: str) -> Path:
    """Return a file of the nano checkpoint beside the checkout."""
    if not (NANO / name).is_file():
        pytest.skip("the nano checkpoint is not beside the checkout")
    return NANO / name


@cache
def clean() -> tuple[Samples, ...]:
    """Twenty recordings of about 8 s at 24 kHz in as many voices (the natural prompts first)."""
    made: list[Samples] = []
    prompts = sorted((NANO / "prompts").glob("*.wav"))
    made += [decode_audio(path).samples for path in prompts]
    speaker, random = Speaker(), np.random.default_rng(11)
    texts = sentences(2 * CLEAN, seed=11)
    for index in range(CLEAN - len(made)):
        text = f"{texts[2 * index]} {texts[2 * index + 1]}"
        made.append(speaker.speak(text, random_warp(random), seed=index)[: 8 * RATE])
    return tuple(made)
