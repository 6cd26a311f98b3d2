"""Whatever no special reader took: words, signs and digits in any mixture."""

from __future__ import annotations

import re

from antiphon.engine.text import numerals
from antiphon.engine.text.addresses import LETTER_A, is_file_name, spell_signs
from antiphon.engine.text.arpabet import OVERRIDE, parse_override
from antiphon.engine.text.numerals import NUMBER
from antiphon.engine.text.table import table
from antiphon.engine.text.unicode_text import romanise
from antiphon.engine.text.view import DIGITS_ONLY, Reading, View
from antiphon.engine.text.words import Word

MAX_WORD_LETTERS = 40
"""A longer run of letters is spoken as several words (the longest English words have about 30)."""

_SIGNS = table(
    """
    &: and; @: at; +: plus; =: equals; <: less than; >: greater than; #: hash; %: percent;
    $: dollar; €: euro; £: pound; ¥: yen; ×: times; ÷: divided by; ≈: about; ≠: not equal to;
    ≤: at most; ≥: at least; ±: plus or minus; °: degrees; §: section; →: to; ->: to; =>: to;
    <=: at most; >=: at least; !=: not equal to; ==: equals; √: square root of; ∞: infinity;
    ₹: rupees; ‰: per mille
    """
)
_UNITED = {"c++": ("C", "plus", "plus"), "c#": ("C", "sharp"), "f#": ("F", "sharp")}
_PIECE = re.compile(
    rf"(?P<override>{OVERRIDE.pattern})|(?P<number>{NUMBER})|(?P<word>[^\W\d_]+(?:'[^\W\d_]+)*'?)"
    r"|(?P<power>\^-?\d+)|(?P<sign>->|=>|<=|>=|!=|==|.)",
    re.DOTALL,
)
_BETWEEN_NUMBERS = {
    "*": "times",
    "-": "minus",
    "–": "to",
    "/": "divided by",
    ":": "to",
    "x": "times",
}


def read_lone_sign(view: View) -> Reading | None:
    """`2 * 3`, `10 - 4`, `a & b`, `x = 5`: a sign between spaces."""
    core = view.token.core
    if core in _BETWEEN_NUMBERS and view.previous[-1:].isdigit():
        following = view.after(1, DIGITS_ONLY)
        if following and following.core[0].isdigit():
            return Reading([*_BETWEEN_NUMBERS[core].split()])
    if core in ("-", "–"):
        return Reading([], mark=",")
    if core in ("*", "/"):
        return Reading([])
    return Reading(_SIGNS[core].split()) if core in _SIGNS else None


def read_rest(view: View) -> Reading:
    """Read a core piece by piece; a hyphen or a slash parts words, a dash is a pause."""
    token = view.token
    core = token.core
    if core.lower() in _UNITED:
        return Reading(_UNITED[core.lower()])
    if is_file_name(core):
        return Reading(spell_signs(core))
    if core[0] in "#@" and len(core) > 1:
        first = {"#": "number" if core[1].isdigit() else "hashtag", "@": "at"}[core[0]]
        return Reading([first, *_read_pieces(core[1:], view.latin_only)])
    return Reading(_read_pieces(core, view.latin_only))


def read_as_written(view: View) -> Reading:
    """Leave a core as it is, for languages whose numbers and abbreviations are not read here."""
    core = view.token.core
    if OVERRIDE.fullmatch(core):
        return Reading([Word(core, parse_override(core))])
    return Reading([Word(core)])


def _read_pieces(core: str, latin_only: bool) -> list[str | Word]:
    words: list[str | Word] = []
    pieces = list(_PIECE.finditer(core))
    arithmetic = any(p["sign"] and p.group() in "+=*×÷<>" for p in pieces)
    for index, piece in enumerate(pieces):
        previous = pieces[index - 1] if index else None
        following = pieces[index + 1] if index + 1 < len(pieces) else None
        if piece["override"]:
            words.append(Word(piece.group(), parse_override(piece.group())))
        elif piece["number"]:
            words += numerals.bare(piece.group())
        elif piece["power"]:
            words += _read_power(int(piece.group()[1:]))
        elif piece["word"]:
            words += _read_word(piece.group(), previous, following, latin_only)
        else:
            _read_sign(piece.group(), previous, following, arithmetic, words)
    return words


def _read_word(
    text: str,
    previous: re.Match[str] | None,
    following: re.Match[str] | None,
    latin_only: bool,
) -> list[str | Word]:
    text = text.rstrip("'")
    if text == "x" and previous and following and previous["number"] and following["number"]:
        return ["by"]
    beside_digit = any(p is not None and p["number"] for p in (previous, following))
    if text in ("a", "A") and beside_digit:
        return [LETTER_A]
    if beside_digit and len(text) in (2, 3) and text.isascii() and text.isupper():
        # CO2, MP3, BA2490
        return [LETTER_A if letter == "A" else letter for letter in text]
    words: list[str | Word] = []
    for word in romanise(text) if latin_only else [text]:
        words += [
            word[start : start + MAX_WORD_LETTERS]
            for start in range(0, len(word), MAX_WORD_LETTERS)
        ]
    return words


def _read_power(exponent: int) -> list[str]:
    if exponent in (2, 3):
        return ["squared" if exponent == 2 else "cubed"]
    return ["to", "the", "power", "of", *numerals.cardinal(exponent)]


def _read_sign(
    sign: str,
    previous: re.Match[str] | None,
    following: re.Match[str] | None,
    arithmetic: bool,
    words: list[str | Word],
) -> None:
    between = bool(previous and previous["number"] and following and following["number"])
    if between and sign in "-/" and not arithmetic:
        return
    if between and sign in _BETWEEN_NUMBERS:
        words += _BETWEEN_NUMBERS[sign].split()
    elif between and sign == ".":
        words.append("point")
    elif sign in _SIGNS:
        words += _SIGNS[sign].split()
    elif sign in ".!?;:,…–—" and words:
        _attach(words, "," if sign in "–—…" else sign)


def _attach(words: list[str | Word], mark: str) -> None:
    """Give the last word a pause, unless it has one."""
    last = words[-1]
    if isinstance(last, Word):
        words[-1] = Word(last.text, last.phones, last.mark or mark)
    elif last[-1] not in ".,!?;:":
        words[-1] = last + mark
