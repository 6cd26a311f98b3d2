"""The preset voice `heart`: hibari-tts, its weights in the wheel, about 100 times real time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from antiphon.engine.text.clauses import Clause
from antiphon.engine.text.ipa import arpabet_to_ipa
from antiphon.engine.text.words import Word
from antiphon.engine.watermark.marked import FloatSamples

SAMPLE_RATE = 24_000
MOST_SYMBOLS = 400
"""The network was trained on no longer inputs; one clause of sixteen words has about 100."""
SLOWEST, FASTEST = 0.5, 2.0
_QUIET = 10 ** (-50 / 20)
_MARGIN = SAMPLE_RATE * 25 // 1000
"""Kept on both sides of what is louder than -50 dB: the soft onsets of `h` and `f`."""
_FADE = SAMPLE_RATE * 5 // 1000


@dataclass(frozen=True, slots=True)
class SpokenClause:
    """A clause as sound, without the silence around it."""

    samples: FloatSamples
    words: tuple[tuple[Word, int], ...]
    """Each word with the sample it ends at."""


class HibariVoice:
    """One loaded network. Calls are short (tens of milliseconds) and not thread-safe."""

    def __init__(self) -> None:
        from hibari import Hibari

        self._model = Hibari(threads=1)

    def speak(self, clause: Clause, *, speed: float, seed: int) -> SpokenClause:
        """Synthesise a clause at `speed` times the voice's own pace; equal seeds, equal samples."""
        rng = np.random.default_rng(seed)
        sound = [
            self._model.from_ids(self._model.ids(part), speed, rng)
            for part in _inputs(self._spell(clause.words))
        ]
        samples = _trimmed(np.concatenate([np.zeros(0, np.float32), *sound]).astype(np.float32))
        # Sound is shared out in proportion to letters: near enough for captions.
        letters = np.cumsum([max(1, len(word.text)) for word in clause.words])
        ends = (letters * (len(samples) / letters[-1])).astype(int)
        return SpokenClause(samples, tuple(zip(clause.words, ends.tolist(), strict=True)))

    def _spell(self, words: Sequence[Word]) -> str:
        """Return words and marks in the network's symbols; written-out pronunciations win.

        Words are looked up together, since their neighbours decide how `read` or `live` is said.
        """
        parts: list[str] = []
        for written_out, run in itertools.groupby(words, lambda word: word.phones is not None):
            if written_out:
                parts += [arpabet_to_ipa(word.phones or ()) + word.mark for word in run]
            else:
                parts.append(self._model.g2p(" ".join(word.text + word.mark for word in run)))
        return " ".join(part.strip() for part in parts if part.strip())


def _inputs(symbols: str) -> list[str]:
    """Cut symbols into inputs that the network takes, between words where there are any."""
    inputs = [""]
    for word in symbols.split(" "):
        for start in range(0, len(word), MOST_SYMBOLS):
            piece = word[start : start + MOST_SYMBOLS]
            if inputs[-1] and len(inputs[-1]) + 1 + len(piece) > MOST_SYMBOLS:
                inputs.append("")
            inputs[-1] += (" " if inputs[-1] else "") + piece
    return [part for part in inputs if part]


def _trimmed(samples: FloatSamples) -> FloatSamples:
    """Cut the silence at both ends and fade what is left in and out, so that joins do not click."""
    loud = np.flatnonzero(np.abs(samples) > _QUIET * max(1e-6, np.abs(samples).max(initial=0.0)))
    if not len(loud):
        return samples[:0]
    cut = samples[max(0, loud[0] - _MARGIN) : loud[-1] + 1 + _MARGIN].copy()
    fade = np.linspace(0.0, 1.0, min(_FADE, len(cut) // 2), dtype=np.float32)
    cut[: len(fade)] *= fade
    cut[len(cut) - len(fade) :] *= fade[::-1]
    return cut
