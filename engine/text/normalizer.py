"""`StreamingNormalizer`: text as it is written in, words as they are spoken out.

Stages: characters → chunks (`chunks`) → tokens without Markdown (`markdown`) → words (the readers).
A word leaves as soon as no later text could change how it is spoken; any split of a text gives the
same words.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum

from antiphon.engine.text.abbreviations import read_abbreviation, read_roman
from antiphon.engine.text.addresses import read_address, read_phone
from antiphon.engine.text.chunks import MAX_CHUNK_CHARACTERS, Chunk, Chunker, LineBreak
from antiphon.engine.text.dates import read_date, read_time
from antiphon.engine.text.fractions import read_fraction
from antiphon.engine.text.generic import read_as_written, read_lone_sign, read_rest
from antiphon.engine.text.markdown import MarkdownReader, Token, mark_of
from antiphon.engine.text.quantities import read_quantity
from antiphon.engine.text.view import Item, NeedMore, Reading, View
from antiphon.engine.text.words import Word

LOOK_AHEAD_TOKENS = 3
"""Most tokens that any reader looks at after the first (`Nov. 30, 2026`, `+1 (555) 123-4567`)."""

MAX_HELD_CHARACTERS = (LOOK_AHEAD_TOKENS + 1) * MAX_CHUNK_CHARACTERS
"""No more characters than these are ever held back, white space not counted."""

_CONTEXT_TOKENS = 4
_MARKS = ".,!?;:"

_Reader = Callable[[View], Reading | None]
_ENGLISH: tuple[_Reader, ...] = (
    read_lone_sign,
    read_abbreviation,
    read_date,
    read_time,
    read_phone,
    read_fraction,
    read_quantity,
    read_address,
    read_roman,
    read_rest,
)
"""In order of trust: the first that knows a token reads it. The last reads anything."""

_AS_WRITTEN: tuple[_Reader, ...] = (read_as_written,)


class Spelling(Enum):
    """What is done to numbers, abbreviations and other scripts."""

    ENGLISH = "english"
    """All in English words and Latin letters: English has no reading for other scripts, so they are
    transliterated rather than dropped."""
    ENGLISH_MIXED = "english_mixed"
    """Numbers and abbreviations in English words; other scripts are left to a model that reads
    them."""
    AS_WRITTEN = "as_written"
    """Only Markdown, emoji and marks are dealt with."""


class StreamingNormalizer:
    """One turn of text. Pure: no I/O, no clock.

    `tags` are written forms that pass through as words (`[laughter]`), for models that know them.

    In fenced code the words are spoken, the fences are not. Ordered lists keep their numbers.
    """

    def __init__(
        self, tags: frozenset[str] = frozenset(), spelling: Spelling = Spelling.ENGLISH
    ) -> None:
        self._readers = _AS_WRITTEN if spelling is Spelling.AS_WRITTEN else _ENGLISH
        self._latin_only = spelling is Spelling.ENGLISH
        self._chunker = Chunker()
        self._markdown = MarkdownReader(tags)
        self._tags = tags
        self._items: deque[Item] = deque()
        self._before: deque[Token] = deque(maxlen=_CONTEXT_TOKENS)
        self._spoken_end = 0
        self._last_mark: str | None = None
        """Mark of the last word said; None before the first."""

    @property
    def held_characters(self) -> int:
        """Characters pushed whose words have not left, white space not counted."""
        written = (i for i in self._items if isinstance(i, Token))
        waiting = sum(len(t.lead) + len(t.core) + len(t.tail) for t in written)
        return waiting + len(self._chunker.open_text)

    def push(self, text: str) -> list[Word]:
        """Take a piece of any size; return the words that are certain now."""
        return self._take(self._chunker.push(text), flushing=False)

    def flush(self) -> list[Word]:
        """Return what is held, read as if nothing followed. More may be pushed afterwards."""
        return self._take(self._chunker.close(), flushing=True)

    def end(self) -> list[Word]:
        """Return the rest: no more text will come."""
        return self.flush()

    def _take(self, chunks: Iterable[Chunk | LineBreak], *, flushing: bool) -> list[Word]:
        for chunk in chunks:
            if isinstance(chunk, LineBreak):
                self._items.append(chunk)
            else:
                self._items.extend(self._markdown.read(chunk))
        words: list[Word] = []
        while self._items and self._read_first(words, flushing):
            pass
        return words

    def _read_first(self, words: list[Word], flushing: bool) -> bool:
        """Read the head of the queue into `words`; False if it has to wait."""
        item = self._items[0]
        if isinstance(item, Token):
            try:
                reading = self._read(item, flushing)
            except NeedMore:
                return False
            used = [self._items.popleft() for _ in range(reading.used)]
            tokens = [token for token in used if isinstance(token, Token)]
            self._emit(reading, tokens[-1], words)
            self._before.extend(tokens)
            if self._last_mark in (".", "!", "?"):
                self._before.clear()
            return True
        self._items.popleft()
        if isinstance(item, LineBreak):
            self._before.clear()
            self._pause("." if item.strong else "", self._spoken_end, words)
        else:
            self._pause(item.mark, item.end, words)
        return True

    def _read(self, token: Token, flushing: bool) -> Reading:
        if token.core in self._tags:
            return Reading([Word(token.core)])
        view = View(
            items=tuple(self._items)[: LOOK_AHEAD_TOKENS + 1],
            open_text=self._chunker.open_text,
            final=flushing or self._chunker.at_line_end,
            opaque=self._markdown.swallowing or self._chunker.continues_cut,
            before=tuple(self._before),
            latin_only=self._latin_only,
        )
        for reader in self._readers:
            reading = reader(view)
            if reading is not None:
                return reading
        raise AssertionError("the last reader reads anything")

    def _emit(self, reading: Reading, last: Token, words: list[Word]) -> None:
        mark = mark_of(last.tail) if reading.mark is None else reading.mark
        if not reading.words:
            self._pause(mark, last.end, words)
            return
        for index, spoken in enumerate(reading.words):
            at_end = index == len(reading.words) - 1
            word = spoken if isinstance(spoken, Word) else _word(spoken)
            final_mark = (mark or word.mark) if at_end else word.mark
            end = last.end if at_end else self._spoken_end
            words.append(Word(word.text, word.phones, final_mark, end))
        self._spoken_end = last.end
        self._last_mark = words[-1].mark

    def _pause(self, mark: str, end: int, words: list[Word]) -> None:
        """A pause of its own, unless nothing was said before it or a pause is there already."""
        if mark and self._last_mark == "":
            words.append(Word("", None, mark, end))
            self._spoken_end = end
            self._last_mark = mark


def _word(spoken: str) -> Word:
    if spoken[-1] in _MARKS:
        return Word(spoken[:-1], None, spoken[-1])
    return Word(spoken)
