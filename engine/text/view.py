"""What a reader sees: the token to be read, what came before, what follows if it has arrived."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from antiphon.engine.text.chunks import LineBreak
from antiphon.engine.text.markdown import Pause, Token
from antiphon.engine.text.words import Word

Item = Token | Pause | LineBreak


class NeedMore(Exception):
    """Text that has not arrived could change the reading: a signal, not a fault."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Words for the first `used` tokens of the view."""

    words: Sequence[str | Word]
    """Plain strings, or words where phones are known. A string may end in a mark (`five,`)."""
    used: int = 1
    mark: str | None = None
    """Mark after the last word; None for the one written after the last token."""


DIGITS_ONLY: frozenset[str] = frozenset()
"""`options` of a reader that looks for a number."""


@dataclass(frozen=True, slots=True)
class View:
    """The head of the queue. Any look ahead that the future could still answer raises `NeedMore`.

    Nothing here may depend on how far text has arrived except by raising: that keeps streamed and
    whole text equal.
    """

    items: Sequence[Item]
    open_text: str
    """Beginning of a chunk that is not complete."""
    final: bool
    """Nothing follows `items`, or a line break."""
    opaque: bool
    """The open chunk may yet disappear in a link target, or follow a pause between table cells."""
    before: Sequence[Token]
    """The last tokens of the same sentence and line, newest last."""
    latin_only: bool = True
    """Whether other scripts are transliterated."""

    @property
    def token(self) -> Token:
        """The token to be read."""
        first = self.items[0]
        assert isinstance(first, Token)
        return first

    @property
    def previous(self) -> str:
        """Core of the token before, or nothing at the start of a sentence."""
        return self.before[-1].core if self.before else ""

    def after(self, index: int, options: frozenset[str] | None = None) -> Token | None:
        """Return the token `index` places on, or None if none follows directly in this line.

        `options` are the words that the caller cares for, besides anything that begins with a
        digit; anything else is None, and is not waited for once it cannot become an option.
        """
        for item in self.items[1 : index + 1]:
            if not isinstance(item, Token):
                return None
        if index < len(self.items):
            item = self.items[index]
            assert isinstance(item, Token)
            wanted = options is None or item.core in options or item.core[0].isdigit()
            return item if wanted else None
        if self.final:
            return None
        if options is not None and index == len(self.items) and self._cannot_become(options):
            return None
        raise NeedMore

    def initial(self, index: int = 1) -> str:
        """First character of the word `index` places on in this line, or nothing."""
        if len(self.items) == index and not self.final and not self.opaque:
            head = self.open_text[:1]
            if head.isascii() and head.isalpha() and self._all_tokens():
                return head
        following = self.after(index)
        return following.core[0] if following else ""

    def _all_tokens(self) -> bool:
        return all(isinstance(item, Token) for item in self.items)

    def _cannot_become(self, options: frozenset[str]) -> bool:
        """Letters only: cleaning never changes those, while a digit may be a keycap emoji."""
        begun = self.open_text
        if self.opaque or not (begun.isascii() and begun.isalpha()):
            return False
        return not any(option.startswith(begun) for option in options)
