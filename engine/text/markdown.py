"""Chunks without their Markdown: what is left is `Token`s to be read and `Pause`s.

The marks of Markdown are not spoken, the words between them are: headings, emphasis, code (its
words, not its fences), lists, tables cell by cell, links by their text and not by their target.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from antiphon.engine.text.arpabet import OVERRIDE
from antiphon.engine.text.chunks import Chunk
from antiphon.engine.text.unicode_text import clean


@dataclass(frozen=True, slots=True)
class Token:
    """A chunk between its marks: `("Hello",)` has lead `("`, core `Hello`, tail `",)`."""

    lead: str
    core: str
    tail: str
    end: int


@dataclass(frozen=True, slots=True)
class Pause:
    """No word here; a pause by `mark`, or nothing at all if that is empty."""

    mark: str
    end: int


_LINE_MARK = re.compile(r"#{1,6}|>+|[-*+•‣◦▪]|(?:```|~~~).*")
_RULE = re.compile(r"[-*_=]{3,}")
_TABLE_RULE = re.compile(r"(?=.*--)[|:-]+|:?-{3,}:?")
_TASK = re.compile(r"\[[xX]?\]?|\]")
_ORDERED = re.compile(r"(\d{1,3})\)")
_TAG = re.compile(r"</?(?:a|b|br|code|div|em|h[1-6]|hr|i|li|ol|p|pre|span|strong|sub|sup|u|ul)/?>")
_EMPHASIS = re.compile(r"\*\*|__|~~|`|(?<![\w)])\*(?=\S)|(?<=[^\s*])\*(?![\w(])")
_FOOTNOTE = re.compile(r"\[\^[^\]]*\]")
_LEAD = re.compile(
    r"""(?:["“”‘«‹›»([{_|\\/¿¡,;:!?*]|<(?!\d)|'(?!(?:em|tis|twas|til|cause)\b)"""
    r"""|\.{2,}|[-–—]{2,}|[–—])+"""
)
_TAIL = re.compile(r"""["'“”’«»‹›)\]}>*_|\\/.,!?;:~^–—-]+$""")
_PAUSING = re.compile(r"[.,!?;:–—-]+")
_MARKS_BY_WEIGHT = "?!.;:,"


def mark_of(tail: str) -> str:
    """Return the one mark spoken for all that stands between two words."""
    for mark in _MARKS_BY_WEIGHT:
        if mark in tail:
            return mark
    return "," if any(c in tail for c in "–—") or "--" in tail else ""


class MarkdownReader:
    """Chunks in, at least one token or pause out for each. Holds what spans chunks."""

    def __init__(self, tags: frozenset[str] = frozenset()) -> None:
        self._tags = tag_pattern(tags)
        self._in_target = False
        self._in_title = False
        self._after_line_mark = False
        self._cell_ended = False

    @property
    def swallowing(self) -> bool:
        """Whether the next chunk may disappear in a link, or be parted from this one by a pause."""
        return self._in_target or self._cell_ended

    def read(self, chunk: Chunk) -> list[Token | Pause]:
        """Return what the chunk has to be read; a `Pause` without mark where nothing is."""
        text = chunk.text
        if chunk.line_start:
            self._cell_ended = False
        if self._in_target:
            text = self._leave_target(chunk)
        at_start = chunk.line_start or self._after_line_mark
        self._after_line_mark = False
        if at_start and text:
            marked = self._read_line_start(text, chunk)
            if marked is not None:
                return marked
        if text and not _TABLE_RULE.fullmatch(text):
            items = self._read_inline(text, chunk)
            if items:
                return items
        return [Pause("", chunk.end)]

    def _read_line_start(self, text: str, chunk: Chunk) -> list[Token | Pause] | None:
        if _RULE.fullmatch(text) or _TABLE_RULE.fullmatch(text):
            return [Pause("." if "|" not in text else "", chunk.end)]
        if _LINE_MARK.fullmatch(text):
            # Marks nest (`> - item`), and a list mark may be followed by a task box.
            self._after_line_mark = True
            return [Pause("", chunk.end)]
        if not chunk.line_start and _TASK.fullmatch(text):
            self._after_line_mark = text != "]"
            return [Pause("", chunk.end)]
        ordered = _ORDERED.fullmatch(text)
        if ordered is not None:
            return [Token("", ordered[1], ".", chunk.end)]
        return None

    def _read_inline(self, text: str, chunk: Chunk) -> list[Token | Pause]:
        items: list[Token | Pause] = []
        rest = 0
        for tag in self._tags.finditer(text) if self._tags else ():
            items += self._read_words(text[rest : tag.start()], chunk)
            items.append(Token("", tag.group(), "", chunk.end))
            rest = tag.end()
        return [*items, *self._read_words(text[rest:], chunk)]

    def _read_words(self, text: str, chunk: Chunk) -> list[Token | Pause]:
        text = self._drop_targets(text, chunk)
        text = clean(_TAG.sub("", _FOOTNOTE.sub("", text)))
        text = _EMPHASIS.sub("", text)
        cells = text.split("|") if "|" in text and "||" not in text else [text]
        items: list[Token | Pause] = []
        for index, cell in enumerate(cells):
            self._cell_ended = self._cell_ended or index > 0
            if not cell:
                continue
            # Paused before the next cell rather than at the bar: the last bar ends the row.
            if self._cell_ended:
                items.append(Pause(",", chunk.end))
            self._cell_ended = False
            items.append(_strip(cell, chunk.end))
        return items

    def _drop_targets(self, text: str, chunk: Chunk) -> str:
        """`[text](url)` → `[text]`; a target that goes on in the next chunk is remembered."""
        while (start := text.find("](")) >= 0:
            end = _closing(text, start + 1)
            if end < 0:
                self._in_target, self._in_title = True, not chunk.cut
                return text[: start + 1]
            text = text[: start + 1] + text[end + 1 :]
        return text

    def _leave_target(self, chunk: Chunk) -> str:
        """Return what follows the target that an earlier chunk began."""
        text = chunk.text
        title_begins = text[0] in "\"'(“"
        if self._in_title and not title_begins and ")" not in text:
            # White space ends a target; only a title in quotes may follow it.
            self._in_target = False
            return text
        self._in_title = not chunk.cut and not title_begins
        end = text.find(")")
        if end < 0:
            return ""
        self._in_target = False
        return text[end + 1 :]


def tag_pattern(tags: frozenset[str]) -> re.Pattern[str] | None:
    """Return what finds any of the tags in a text, or None if there are none."""
    return re.compile("|".join(re.escape(tag) for tag in sorted(tags))) if tags else None


def _closing(text: str, opening: int) -> int:
    depth = 0
    for index in range(opening, len(text)):
        depth += (text[index] == "(") - (text[index] == ")")
        if depth == 0:
            return index
    return -1


def _strip(text: str, end: int) -> Token | Pause:
    """Part the core from what stands around it; brackets of phone overrides belong to the core."""
    if text in _READ_ALONE:
        return Token("", text, "", end)
    override = OVERRIDE.search(text)
    found = _LEAD.match(text, 0, override.start() if override else len(text))
    lead = found.group() if found else ""
    rest = text[len(lead) :]
    overrides = list(OVERRIDE.finditer(rest))
    tail_found = _TAIL.search(rest, overrides[-1].end() if overrides else 0)
    tail = tail_found.group() if tail_found else ""
    core = rest[: len(rest) - len(tail)]
    if core:
        return Token(lead, core, tail, end)
    return Pause(mark_of(text) if _PAUSING.fullmatch(text) else "", end)


_READ_ALONE = frozenset({"<", ">", "<=", ">=", "->", "=>", "!=", "-", "–", "*", "/", "w/"})
"""Signs that are words when they stand alone, though they are stripped from the ends of others."""
