"""Cut a stream of words into clauses: for engines that need a whole one, and for LM segments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from antiphon.engine.text.words import Word

_SENTENCE_MARKS = ".!?"
_OPENING = (
    "and but or nor so yet because although though while when where which who that if unless until "
    "since whereas before after as than then"
)
_CONJUNCTIONS = frozenset(_OPENING.split())


@dataclass(frozen=True, slots=True)
class ClauseLimits:
    """How long a clause is, in words."""

    min_words: int = 3
    """Shorter clauses are joined to the next one: one-word clauses sound clipped, and speech models
    are trained on few of them."""
    max_words: int = 16
    """Longer clauses are cut at a conjunction, or in the middle of things if there is none."""
    first_min_words: int = 1
    """The first clause of a turn decides when the listener hears something: `Sure,` may stand
    alone."""
    first_max_words: int = 8


@dataclass(frozen=True, slots=True)
class Clause:
    """Words that are spoken in one breath."""

    words: tuple[Word, ...]
    ends_sentence: bool

    @property
    def source_end(self) -> int:
        """Characters of the pushed text dealt with once the clause is spoken."""
        return self.words[-1].source_end


class ClauseSplitter:
    """Words in, clauses out; a clause leaves with its last word. One turn.

    A pause without a word joins the word before it, so a clause has no empty words.
    """

    def __init__(self, limits: ClauseLimits | None = None) -> None:
        self._limits = limits or ClauseLimits()
        self._words: list[Word] = []
        self._first = True

    def push(self, words: Iterable[Word]) -> list[Clause]:
        """Return the clauses that are complete."""
        clauses: list[Clause] = []
        for word in words:
            if word.text:
                self._words.append(word)
            elif not self._words:
                continue
            else:
                last = self._words[-1]
                self._words[-1] = replace(last, mark=word.mark, source_end=word.source_end)
            # What is left of a long one may be a clause as well, where it ends with a mark.
            while self._words and (cut := self._cut()):
                clauses.append(self._take(cut))
        return clauses

    def flush(self) -> list[Clause]:
        """Return what is held, complete or not."""
        return [self._take(len(self._words))] if self._words else []

    def end(self) -> list[Clause]:
        """Return the rest: no more words will come."""
        return self.flush()

    def _cut(self) -> int:
        """Words that make a clause now; 0 if more are awaited."""
        limits = self._limits
        shortest = limits.first_min_words if self._first else limits.min_words
        longest = limits.first_max_words if self._first else limits.max_words
        held = len(self._words)
        if self._words[-1].mark and shortest <= held <= longest:
            return held
        if held <= longest:
            return 0
        # One word past the limit is held, so that a conjunction there can begin the next clause.
        for index in range(held - 1, max(shortest, longest // 2) - 1, -1):
            if self._words[index].text.lower() in _CONJUNCTIONS:
                return index
        return longest

    def _take(self, count: int) -> Clause:
        words, self._words = tuple(self._words[:count]), self._words[count:]
        self._first = False
        return Clause(words, words[-1].mark in tuple(_SENTENCE_MARKS))
