"""Cut a stream of text into chunks: the runs between white space.

Everything after this stage decides on whole chunks and on line breaks, never on what happened to
arrive together. That is why pieces of any size give the same words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_CHUNK_CHARACTERS = 256
"""A run without white space is cut here, so that nothing is held for ever. Longer than any URL that
is pleasant to hear; shorter ones would be torn apart in the middle of a link target."""

_SETTLED = re.compile(r"[\"'“‘*_]*[^\W\d_](?:[^\W\d_]|['’])*[,;!?]")
"""A plain word with its mark: nothing that follows directly can change how it is spoken, so it
need not wait for white space. (A full stop can become a decimal, a domain or an ellipsis, a colon
a time or a URL.)"""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A run of characters between white space."""

    text: str
    end: int
    """Position after its last character in all text pushed so far."""
    line_start: bool = False
    cut: bool = False
    """Ended by the limit, so that the next chunk continues it."""


@dataclass(frozen=True, slots=True)
class LineBreak:
    """One or more line ends between two chunks."""

    strong: bool
    """A blank line, or a next line that does not begin in lower case (so not a wrapped line)."""


class Chunker:
    """Characters in, chunks and line breaks out as soon as they are certain."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._has_letter = False
        self._has_ideograph = False
        self._cut = False
        self._line_start = True
        self._line_ends = 0
        self.position = 0
        """Characters pushed so far."""

    @property
    def open_text(self) -> str:
        """What has arrived of a chunk that is not complete."""
        return "".join(self._open)

    @property
    def at_line_end(self) -> bool:
        """Whether a line break will come before the next chunk."""
        return self._line_ends > 0

    @property
    def continues_cut(self) -> bool:
        """Whether the open chunk continues one that was cut at the limit."""
        return self._cut

    def push(self, text: str) -> list[Chunk | LineBreak]:
        """Take a piece of any size; return what is complete."""
        items: list[Chunk | LineBreak] = []
        for character in text:
            if character.isspace():
                self._close(items)
                self._cut = False
                # `\r\n` is one line end; a lone `\r` counts as a space.
                if character in "\n\x85\u2028\u2029":
                    self._end_line(items)
            else:
                self._append(character, items)
            self.position += 1
        return items

    def close(self) -> list[Chunk | LineBreak]:
        """Complete the open chunk because nothing more comes, or nothing that may be waited for."""
        items: list[Chunk | LineBreak] = []
        self._close(items)
        self._cut = False
        return items

    def _end_line(self, items: list[Chunk | LineBreak]) -> None:
        self._line_ends += 1
        self._line_start = True
        if self._line_ends == 2:
            items.append(LineBreak(strong=True))

    def _append(self, character: str, items: list[Chunk | LineBreak]) -> None:
        if self._line_ends == 1:
            items.append(LineBreak(strong=not character.islower()))
        self._line_ends = 0
        ideograph = is_ideograph(character)
        spoken = character.isalnum()
        if (ideograph and self._has_letter) or (spoken and self._has_ideograph):
            self._close(items)
        self._open.append(character)
        self._has_letter = self._has_letter or spoken
        self._has_ideograph = self._has_ideograph or ideograph
        if len(self._open) >= MAX_CHUNK_CHARACTERS:
            self._close(items, position=self.position + 1)
            self._cut = True
        elif character in ",;!?" and _SETTLED.fullmatch(self.open_text):
            self._close(items, position=self.position + 1)

    def _close(self, items: list[Chunk | LineBreak], position: int | None = None) -> None:
        if not self._open:
            return
        end = self.position if position is None else position
        cut = len(self._open) >= MAX_CHUNK_CHARACTERS
        items.append(Chunk(self.open_text, end, self._line_start, cut))
        self._open.clear()
        self._has_letter = self._has_ideograph = False
        self._line_start = False


def is_ideograph(character: str) -> bool:
    """Whether it is a Han character: written without spaces, and a word's part of its own."""
    return (
        "\u3400" <= character <= "\u4dbf"
        or "\u4e00" <= character <= "\u9fff"
        or "\uf900" <= character <= "\ufaff"
        or "\U00020000" <= character <= "\U0003ffff"
    )
