"""Numbers as spoken in the United States (no `and` inside), by the rules of Unicode's CLDR."""

from __future__ import annotations

import re
from functools import lru_cache

from unicode_rbnf import FormatPurpose, RbnfEngine

_engine = RbnfEngine.for_language("en")

NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
"""A number without sign, as it is written: thousands separators, decimals."""

MAX_CARDINAL_DIGITS = 15
"""Longer integers are read digit by digit: nobody follows a quintillion by ear."""

_TOO_LONG = 10**MAX_CARDINAL_DIGITS

_DENOMINATORS = {2: ("half", "halves"), 4: ("quarter", "quarters")}


def cardinal(value: int) -> list[str]:
    """`1234` → one thousand two hundred thirty four; digit by digit where nobody could follow."""
    size = abs(value)
    spoken = digits(str(size)) if size >= _TOO_LONG else list(_spell(size, FormatPurpose.CARDINAL))
    return ["minus", *spoken] if value < 0 else spoken


def ordinal(value: int) -> list[str]:
    """`23` → twenty third."""
    if value >= _TOO_LONG:
        return [*digits(str(value // 10)), *ordinal(value % 10)]
    return list(_spell(value, FormatPurpose.ORDINAL))


@lru_cache(maxsize=4096)
def _spell(value: int, purpose: FormatPurpose) -> tuple[str, ...]:
    return tuple(_engine.format_number(value, purpose).text.replace("-", " ").split())


def digits(text: str) -> list[str]:
    """`007` → zero zero seven; anything that is not a digit is left out."""
    return [cardinal(int(c))[0] for c in text if c.isdigit()]


def number(text: str) -> list[str]:
    """Read a `NUMBER`: `1,234.50` → one thousand two hundred thirty four point five zero."""
    whole, _, fraction = text.replace(",", "").partition(".")
    words = integer(whole) if whole else []
    if fraction:
        words = [*words, "point", *digits(fraction)] if words else ["point", *digits(fraction)]
    return words


def integer(text: str) -> list[str]:
    """Read a run of digits: digit by digit with leading zeros or when it is too long to follow."""
    if (len(text) > 1 and text[0] == "0") or len(text) > MAX_CARDINAL_DIGITS:
        return digits(text)
    return cardinal(int(text))


def is_one(text: str) -> bool:
    """Whether what is counted stays in the singular."""
    return text.replace(",", "") == "1"


def year(value: int) -> list[str]:
    """`1905` → nineteen oh five, `2000` → two thousand, `2024` → twenty twenty four."""
    century, rest = divmod(value, 100)
    if not 1000 <= value <= 9999 or (century % 10 == 0 and rest < 10):
        return cardinal(value)
    if rest == 0:
        return [*cardinal(century), "hundred"]
    return [*cardinal(century), *(["oh"] if rest < 10 else []), *cardinal(rest)]


def looks_like_year(text: str) -> bool:
    """Whether four bare digits are read as a year (`1500 people` is fifteen hundred either way)."""
    return re.fullmatch(r"1[1-9]\d\d|20\d\d", text) is not None


def bare(text: str) -> list[str]:
    """Read a `NUMBER` that counts nothing: as a year where it looks like one."""
    return year(int(text)) if looks_like_year(text) else number(text)


def fraction(numerator: int, denominator: int) -> list[str]:
    """`3/4` → three quarters, `1/3` → one third, `5/17` → five seventeenths."""
    if denominator in _DENOMINATORS:
        single, many = _DENOMINATORS[denominator]
        return [*cardinal(numerator), single if numerator == 1 else many]
    below = ordinal(denominator)
    return [*cardinal(numerator), *below[:-1], below[-1] if numerator == 1 else below[-1] + "s"]
