"""`Word`: what the text front end hands to an engine's own tokenizer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Word:
    """One spoken word after normalising.

    `$5.50` in a text becomes the words `five dollars and fifty cents`; the written form is
    accounted to the last of them, so that progress can be told in characters of what was pushed.

    A pause that is only known after its word has left (a dash between spaces, the end of a line)
    comes as a word without text: `Word("", mark=",")`. It never stands first and never follows a
    word that has a mark.
    """

    text: str
    """As spoken, lower or mixed case, letters and apostrophes only (`fifty`, `NASA`); an override
    or a tag is kept as it was written (`[T][AH0]…`, `[laughter]`)."""
    phones: tuple[str, ...] | None = None
    """ARPABET with stress (`T AH0 M EY1 T OW2`), only where the caller wrote them out or where a
    letter's name is meant (`A` in `a@b.com`)."""
    mark: str = ""
    """One of `. , ! ? ; :` spoken as a pause after this word, or nothing."""
    source_end: int = 0
    """Characters of the pushed text that are dealt with once this word is spoken."""
