"""Fractions: `1/2`, `2 3/4`, `2½`, `1/3rd`."""

from __future__ import annotations

import re

from antiphon.engine.text import numerals
from antiphon.engine.text.view import DIGITS_ONLY, Reading, View

_SIGNS = {"-": "minus", "+": "plus", "~": "about"}
_FRACTION = re.compile(
    r"(?P<sign>[-+~]?)(?:(?P<whole>\d{1,6})\+)?(?P<top>\d{1,3})/(?P<bottom>\d{1,3})(?:rds?|ths?)?"
)
_IDIOMS = {"24/7": "twenty four seven", "9/11": "nine eleven"}
_COMMON_DENOMINATORS = {*range(2, 11), 12, 16, 20, 32, 64, 100}


def read_fraction(view: View) -> Reading | None:
    """`1/2`, `2 3/4`, `10/10`; a slash between other numbers is read as one."""
    core = view.token.core
    if re.fullmatch(r"\d{1,6}", core) and not view.token.tail:
        following = view.after(1, DIGITS_ONLY)
        found = following and not following.lead and _FRACTION.fullmatch(following.core)
        if found and not found["whole"] and _is_common(found) and not found["sign"]:
            return Reading([*numerals.integer(core), "and", *_spell(found, whole=True)], used=2)
        return None
    found = _FRACTION.fullmatch(core)
    if found is None:
        return None
    sign = [_SIGNS[found["sign"]]] if found["sign"] else []
    if found["whole"]:
        return Reading(
            [*sign, *numerals.integer(found["whole"]), "and", *_spell(found, whole=True)]
        )
    if core in _IDIOMS:
        return Reading(_IDIOMS[core].split())
    if _is_common(found):
        return Reading([*sign, *_spell(found)])
    between = ["out", "of"] if found["top"] == found["bottom"] else ["over"]
    return Reading(
        [*sign, *numerals.integer(found["top"]), *between, *numerals.integer(found["bottom"])]
    )


def _is_common(found: re.Match[str]) -> bool:
    top, bottom = int(found["top"]), int(found["bottom"])
    return bottom in _COMMON_DENOMINATORS and 0 < top < bottom


def _spell(found: re.Match[str], *, whole: bool = False) -> list[str]:
    """After a whole number, one third is `a third`."""
    words = numerals.fraction(int(found["top"]), int(found["bottom"]))
    return ["a", *words[1:]] if whole and words[0] == "one" else words
