"""Words → the phone tokens of the nano checkpoint (its README, "Text front-end rules")."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from antiphon.engine.text.arpabet import is_vowel
from antiphon.engine.text.lexicon import STRONG_THE, Phones, pronounce
from antiphon.engine.text.words import Word

_SENTENCE_MARKS = ".!?"


@dataclass(frozen=True, slots=True)
class PhonePiece:
    """The tokens of one word, or of a mark that came later than its word."""

    tokens: tuple[str, ...]
    """` `, `[HH]`, `[AH0]`, …, `,`: each is one id of the checkpoint's tokenizer."""
    text: str
    """The word with its mark, for captions."""
    mark: str
    source_end: int

    @property
    def phones(self) -> str:
        """The tokens as one string, to be encoded."""
        return "".join(self.tokens)


class ArpabetFrontEnd:
    """Words in, phone tokens out, one turn. Every word is preceded by one space, also the first.

    Two things wait: `the`, for the sound that follows it, and a comma, semicolon or colon, for the
    next word: a turn that ends there ends with a full stop, since the model was trained on
    sentences that end in `.`, `!` or `?` only.
    """

    def __init__(self) -> None:
        self._the: Word | None = None
        self._mark: PhonePiece | None = None
        self._sentence_open = False
        self._last_end = 0

    def push(self, words: Iterable[Word]) -> list[PhonePiece]:
        """Return the pieces that are certain now."""
        pieces: list[PhonePiece] = []
        for word in words:
            self._add(word, pieces)
        return pieces

    def flush(self) -> list[PhonePiece]:
        """Return what waits, as if no vowel followed."""
        pieces: list[PhonePiece] = []
        self._release_the("", pieces)
        self._release_mark(pieces)
        return pieces

    def end(self) -> list[PhonePiece]:
        """Return the rest, with a full stop if the last sentence has no end."""
        pieces: list[PhonePiece] = []
        self._release_the("", pieces)
        waiting, self._mark = self._mark, None
        if waiting is not None:
            pieces.append(replace(waiting, tokens=(".",), text=".", mark="."))
        elif self._sentence_open:
            end = pieces[-1].source_end if pieces else self._last_end
            pieces.append(PhonePiece((".",), "", ".", end))
        self._sentence_open = False
        return pieces

    def _add(self, word: Word, pieces: list[PhonePiece]) -> None:
        groups = _groups(word)
        self._release_the(groups[0][0] if groups else "", pieces)
        if groups or word.mark:
            self._release_mark(pieces)
        if word.text.lower() == "the" and word.phones is None and not word.mark:
            self._the = word
            return
        self._emit(word, groups, pieces)

    def _emit(self, word: Word, groups: tuple[Phones, ...], pieces: list[PhonePiece]) -> None:
        tokens = [t for group in groups for t in (" ", *(f"[{phone}]" for phone in group))]
        held = word.mark if word.mark and word.mark not in _SENTENCE_MARKS else ""
        if word.mark and not held:
            tokens.append(word.mark)
        if tokens:
            mark = "" if held else word.mark
            pieces.append(PhonePiece(tuple(tokens), word.text + mark, mark, word.source_end))
            self._last_end = word.source_end
        if held:
            self._mark = PhonePiece((held,), held, held, word.source_end)
        self._sentence_open = (self._sentence_open or bool(groups)) and (
            not word.mark or bool(held)
        )

    def _release_the(self, following: str, pieces: list[PhonePiece]) -> None:
        word, self._the = self._the, None
        if word is not None:
            before_vowel = bool(following) and is_vowel(following)
            groups = (STRONG_THE,) if before_vowel else pronounce("the")
            self._emit(word, groups, pieces)

    def _release_mark(self, pieces: list[PhonePiece]) -> None:
        if self._mark is not None:
            pieces.append(self._mark)
            self._mark = None


def _groups(word: Word) -> tuple[Phones, ...]:
    if word.phones is not None:
        return (word.phones,)
    return pronounce(word.text) if word.text else ()
