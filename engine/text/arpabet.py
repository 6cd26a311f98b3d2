"""The ARPABET inventory of the CMU dictionary and overrides written in it (`[T][AH0]…`)."""

from __future__ import annotations

import re

VOWELS = ("AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW")
CONSONANTS = (
    *("B", "CH", "D", "DH", "F", "G", "HH", "JH", "K", "L", "M", "N"),
    *("NG", "P", "R", "S", "SH", "T", "TH", "V", "W", "Y", "Z", "ZH"),
)
PHONES = frozenset(CONSONANTS) | {vowel + stress for vowel in VOWELS for stress in "012"}

_PHONE = rf"\[(?:(?:{'|'.join(VOWELS)})[012]|(?:{'|'.join(sorted(CONSONANTS, key=len)[::-1])}))\]"

OVERRIDE = re.compile(rf"(?:{_PHONE}){{2,}}|\[(?:{'|'.join(VOWELS)})[012]\]")
"""Phones in brackets, run together. A single consonant is left to be read as text: `[B]` is more
often a footnote or an option than a sound."""


def parse_override(text: str) -> tuple[str, ...]:
    """`[T][UW1]` → `("T", "UW1")`. `text` must match `OVERRIDE` fully."""
    return tuple(text[1:-1].split("]["))


def is_vowel(phone: str) -> bool:
    """Whether a phone is the middle of a syllable: those carry a stress digit."""
    return phone[-1].isdigit()
