"""E-mail addresses, web addresses and telephone numbers."""

from __future__ import annotations

import re

from antiphon.engine.text import numerals
from antiphon.engine.text.view import DIGITS_ONLY, Reading, View
from antiphon.engine.text.words import Word

_EMAIL = re.compile(r"[\w.+%-]+@[\w-]+(?:\.[\w-]+)+")
_TOP_LEVELS = (
    "com|org|net|edu|gov|io|ai|co|dev|app|info|me|tv|us|uk|ca|de|fr|es|it|nl|eu|ch|jp|cn|au|in|ly"
)
_WEB = re.compile(
    rf"(?:(?P<scheme>[a-z][a-z0-9+.-]*)://|(?=www\.)|(?=[a-z0-9.-]+\.(?:{_TOP_LEVELS})(?:[/:?#]|$)))"
    r"(?P<rest>\S+)"
)
_EXTENSION = re.compile(r"\w[\w-]*(?:\.[a-z0-9]{1,5})+")
_SIGNS = {
    **{".": "dot", "/": "slash", "-": "dash", "_": "underscore", "@": "at", ":": "colon"},
    **{"?": "question mark", "=": "equals", "&": "and", "#": "hash", "%": "percent", "+": "plus"},
    **{"~": "tilde", ",": "comma"},
}
_PART = re.compile(r"[^\W\d_]+|\d+|[^\s]")
_PHONE = re.compile(r"(?:\+?\d{1,3}[-.])?(?:\d{3}[-.])?\d{3}[-.]\d{4}")
_GROUPED = re.compile(r"\d+(?:-\d+){2,}")
_FOUR = re.compile(r"\d{4}")
_COUNTRY = re.compile(r"\+\d{1,3}")
_LONG = re.compile(r"\+?\d{10,15}")

LETTER_A = Word("A", ("EY1",))
"""The letter: written alone, `a` would be read as the article."""


def read_address(view: View) -> Reading | None:
    """`a.b@example.com` → A dot B at example dot com; `https://` itself is not spoken."""
    core = view.token.core
    if _EMAIL.fullmatch(core):
        return Reading(spell_signs(core))
    web = _WEB.fullmatch(core)
    if web:
        return Reading(spell_signs(web["rest"].rstrip("/")))
    return None


def read_phone(view: View) -> Reading | None:
    """`555-1234`, `+1 (555) 123-4567`, `800.555.0199`: digit by digit, with a pause per group."""
    token = view.token
    core = token.core
    if _PHONE.fullmatch(core) or _GROUPED.fullmatch(core):
        return Reading(_dial(core))
    if core.isdigit() and _continues_number(view):
        return Reading(numerals.digits(core))
    if _LONG.fullmatch(core):
        return Reading([*(["plus"] if core[0] == "+" else []), *numerals.digits(core)])
    country = _COUNTRY.fullmatch(core)
    area = "(" in token.lead and token.tail == ")" and re.fullmatch(r"\d{3}", core)
    if not (country and not token.tail) and not area:
        return None
    following = view.after(1, DIGITS_ONLY)
    if following is None:
        return None
    if country and following.core.isdigit() and not following.lead:
        return Reading(_dial(core + "-"))
    if area and _PHONE.fullmatch(following.core):
        return Reading([*_dial(core + "-"), *_dial(following.core)], used=2)
    if country and _PHONE.fullmatch(following.core):
        return Reading([*_dial(core + "-"), *_dial(following.core)], used=2)
    if country and "(" in following.lead and following.tail == ")":
        number = view.after(2, DIGITS_ONLY)
        if number and _PHONE.fullmatch(number.core):
            groups = f"{core}-{following.core}-{number.core}"
            return Reading(_dial(groups), used=3)
    return None


def _continues_number(view: View) -> bool:
    """Groups of a number: `+44 20 7946 0958`, `4111 1111 1111 1111`."""
    token = view.token
    if view.before and view.before[-1].tail:
        return False
    if _FOUR.fullmatch(token.core):
        if _FOUR.fullmatch(view.previous):
            return True
        following = None if token.tail else view.after(1, DIGITS_ONLY)
        if following and _FOUR.fullmatch(following.core):
            return True
    for earlier in reversed(view.before):
        if not earlier.core.isdigit():
            return _COUNTRY.fullmatch(earlier.core) is not None
    return False


def spell_signs(text: str) -> list[str | Word]:
    """Read an address or a file name part by part, its signs by name."""
    words: list[str | Word] = []
    for part in _PART.findall(text):
        if part.isdigit():
            words += numerals.integer(part) if len(part) <= 4 else numerals.digits(part)
        elif part[0].isalpha():
            words.append(LETTER_A if part in "aA" else part if len(part) > 1 else part.upper())
        else:
            words += _SIGNS.get(part, "").split()
    return words


def is_file_name(core: str) -> bool:
    """`main.py`, `Node.js`: a full stop inside that does not end a sentence."""
    return _EXTENSION.fullmatch(core) is not None and not core.replace(".", "").isdigit()


def _dial(text: str) -> list[str]:
    words = ["plus"] if text[0] == "+" else []
    groups = [group for group in re.split(r"[-.]", text.lstrip("+")) if group]
    for index, group in enumerate(groups):
        spoken = numerals.digits(group)
        last = index == len(groups) - 1 and text[-1] not in "-."
        words += spoken if last else [*spoken[:-1], spoken[-1] + ","]
    return words
