"""Clauses → the symbols that the preset voices read (Kokoro's alphabet)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from antiphon.engine.text.arpabet import is_vowel
from antiphon.engine.text.clauses import Clause
from antiphon.engine.text.ipa import arpabet_to_ipa
from antiphon.engine.text.lexicon import STRONG_THE, Phones, pronounce
from antiphon.engine.text.words import Word

MAX_SYMBOLS = 380
"""Longest string given to the model at once; the voices learned from strings of up to 400."""


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """A word and where its sound ends."""

    text: str
    """With its mark, for captions."""
    source_end: int
    symbols_end: int
    """Index into the string behind the word's last symbol, its mark not counted."""


@dataclass(frozen=True, slots=True)
class PhonemeString:
    """What the model speaks in one go."""

    symbols: str
    words: tuple[SpokenWord, ...]
    mark: str
    """The pause mark at the end, or nothing where the clause was cut for its length."""


def phoneme_strings(clause: Clause) -> list[PhonemeString]:
    """Return what is to be spoken for a clause: nothing, one string, or several if it is long.

    Words without a sound are accounted to the word before them.
    """
    strings: list[PhonemeString] = []
    symbols, words = "", list[SpokenWord]()
    for word, sound in _sounds(clause.words):
        for piece in _bounded(sound):
            if symbols and len(symbols) + 1 + len(piece) > MAX_SYMBOLS:
                strings.append(PhonemeString(symbols, tuple(words), ""))
                symbols, words = "", []
            symbols = f"{symbols} {piece}" if symbols else piece
        text = word.text + word.mark
        if sound:
            words.append(SpokenWord(text, word.source_end, len(symbols)))
        elif words:
            last = words[-1]
            words[-1] = SpokenWord(last.text + word.mark, word.source_end, last.symbols_end)
        if symbols and word.mark and symbols[-1] not in ".,!?;:":
            symbols += word.mark
    if words:
        mark = symbols[-1] if symbols[-1] in ".,!?;:" else ""
        strings.append(PhonemeString(symbols, tuple(words), mark))
    return strings


def _sounds(words: tuple[Word, ...]) -> Iterator[tuple[Word, str]]:
    groups = [_groups(word) for word in words]
    for index, word in enumerate(words):
        following = next((g[0] for g in groups[index + 1 :] if g), ())
        if word.text.lower() == "the" and word.phones is None and _starts_with_vowel(following):
            yield word, arpabet_to_ipa(STRONG_THE)
        else:
            yield word, " ".join(arpabet_to_ipa(group) for group in groups[index])


def _groups(word: Word) -> tuple[Phones, ...]:
    if word.phones is not None:
        return (word.phones,)
    return pronounce(word.text) if word.text else ()


def _starts_with_vowel(phones: Phones) -> bool:
    return bool(phones) and is_vowel(phones[0])


def _bounded(sound: str) -> list[str]:
    return [sound[i : i + MAX_SYMBOLS] for i in range(0, len(sound), MAX_SYMBOLS)]
