"""Money, units, percentages, ordinals, ranges and plain numbers."""

from __future__ import annotations

import re

from antiphon.engine.text import numerals, units
from antiphon.engine.text.numerals import NUMBER
from antiphon.engine.text.view import Reading, View

_SIGNS = {"-": "minus", "+": "plus", "~": "about", "≈": "about", "±": "plus or minus"} | {
    **{"<": "less than", ">": "more than", "≤": "at most", "≥": "at least"},
}
_CURRENCY = "|".join(re.escape(sign) for sign in sorted(units.CURRENCIES, key=len)[::-1])
_QUANTITY = re.compile(
    rf"(?P<sign>[-+~≈±<>≤≥]*)(?P<before>{_CURRENCY})?(?P<minus>-)?(?P<number>{NUMBER})"
    rf"(?:(?P<to>[-–—])(?P<before2>{_CURRENCY})?(?P<number2>{NUMBER}))?"
    r"(?P<suffix>[^\W\d_]+/[^\W\d_]+|[^\W\d_]+(?:\^[23])?|°[CF]?|%)?"
    rf"(?P<after>{_CURRENCY})?(?P<more>\+)?(?:/(?P<per>[^\W\d_]+))?"
)
_SCIENTIFIC = re.compile(rf"(-?)({NUMBER})[eE]([-+]?)(\d{{1,4}})")
_HEIGHT = re.compile(r"(\d)'(\d{1,2})")
_SUFFIXES = {"in": "inch", "x": "x", "K": "K", "B": "B", **units.UNITS}
_FOLLOWING = frozenset((*units.MAGNITUDES, *units.UNITS, *units.CURRENCIES))
_PER = {
    "mo": "month",
    "yr": "year",
    "hr": "hour",
    "h": "hour",
    "s": "second",
    "min": "minute",
    "kg": "kilogram",
}


def read_quantity(view: View) -> Reading | None:
    """`$5.50`, `€3M`, `5 km`, `20°C`, `99 %`, `3rd`, `1990s`, `10-15`, `-5`, `50+`, `1,234.5`."""
    token = view.token
    if token.core in units.UNITS and "/" in token.core:
        return Reading(units.plural(units.UNITS[token.core]))
    if scientific := _SCIENTIFIC.fullmatch(token.core):
        return Reading(_power_of_ten(scientific))
    if height := _HEIGHT.fullmatch(token.core):
        return Reading([*numerals.integer(height[1]), "feet", *numerals.integer(height[2])])
    found = _QUANTITY.fullmatch(token.core)
    if found is None or _is_phone_like(found):
        return None
    suffix = found["suffix"] or ""
    if not (found["before"] or found["after"] or found["to"] or found["sign"]):
        special = _ordinal_or_decade(found["number"], suffix)
        if special:
            return Reading(special)
    if suffix and suffix not in _SUFFIXES and suffix not in units.MAGNITUDES:
        return None
    magnitude, unit = _split_suffix(suffix, bool(found["before"] or found["after"]))
    currency = found["before"] or found["before2"] or found["after"] or ""
    used = 1
    if not token.tail and not found["per"] and not found["more"]:
        magnitude, unit, currency, used = _look_ahead(view, magnitude, unit, currency)
    words = [_SIGNS[sign] for sign in found["sign"]] + (["minus"] if found["minus"] else [])
    words = " ".join(words).split() + _amount(found, magnitude, unit, currency)
    if found["more"]:
        words.append("plus")
    if found["per"]:
        words += ["per", _PER.get(found["per"], found["per"])]
    return Reading(words, used, _mark_after_unit(view, used))


def _mark_after_unit(view: View, used: int) -> str | None:
    """The stop of `20 lbs. of it` is the abbreviation's own."""
    last = view.after(used - 1) if used > 1 else None
    if last is None or last.tail != "." or last.core not in units.UNITS:
        return None
    return "" if view.initial(used).islower() else "."


def _power_of_ten(found: re.Match[str]) -> list[str]:
    sign, number, exponent_sign, exponent = found.groups()
    return [
        *(["minus"] if sign else []),
        *numerals.number(number),
        *("times", "ten", "to", "the", "power", "of"),
        *(["minus"] if exponent_sign == "-" else []),
        *numerals.cardinal(int(exponent)),
    ]


def _is_phone_like(found: re.Match[str]) -> bool:
    """`555-1234` is dialled, `10-15` is a range."""
    first, second = found["number"], found["number2"] or ""
    return len(first) == 3 and len(second) == 4 and (first + second).isdigit()


def _ordinal_or_decade(number: str, suffix: str) -> list[str] | None:
    if "." in number:
        return None
    if suffix in ("st", "nd", "rd", "th"):
        return numerals.ordinal(int(number.replace(",", "")))
    if suffix == "s" and re.fullmatch(r"(?:\d\d)?\d0", number):
        words = numerals.year(int(number)) if len(number) == 4 else numerals.cardinal(int(number))
        last = words[-1]
        return [*words[:-1], last[:-1] + "ies" if last.endswith("y") else last + "s"]
    return None


def _split_suffix(suffix: str, money: bool) -> tuple[str, str]:
    if suffix in units.MAGNITUDES and (
        money or suffix in ("k", "M", "bn", "mn") or len(suffix) > 2
    ):
        return units.MAGNITUDES[suffix], ""
    return "", _SUFFIXES.get(suffix, suffix)


def _look_ahead(view: View, magnitude: str, unit: str, currency: str) -> tuple[str, str, str, int]:
    """Take a magnitude, then a unit or a currency code from the tokens that follow."""
    used = 1
    while not unit and (following := view.after(used, _FOLLOWING)):
        word = following.core
        if following.lead or used == 3:
            break
        if not magnitude and word in units.MAGNITUDES and len(word) > 1:
            magnitude = units.MAGNITUDES[word]
        elif not currency and word in units.CURRENCIES:
            currency = word
        elif not currency and word in units.UNITS and word not in units.ATTACHED_ONLY:
            unit = units.UNITS[word]
        else:
            break
        used += 1
        if following.tail:
            break
    return magnitude, unit, currency, used


def _amount(found: re.Match[str], magnitude: str, unit: str, currency: str) -> list[str]:
    number, second = found["number"], found["number2"]
    if second:
        low, high = numerals.bare(number), numerals.bare(second)
        return [*low, "to", *high, *_noun(magnitude, unit, currency, one=False)]
    if currency and not magnitude and not unit and re.fullmatch(r"[\d,]*\.\d\d", number):
        return _money(number, currency)
    if not (magnitude or unit or currency):
        return numerals.bare(number)
    one = numerals.is_one(number) and not magnitude
    return [*numerals.number(number), *_noun(magnitude, unit, currency, one)]


def _noun(magnitude: str, unit: str, currency: str, one: bool) -> list[str]:
    noun = units.CURRENCIES[currency][0] if currency else unit
    return [*magnitude.split(), *(units.singular(noun) if one else units.plural(noun))]


def _money(number: str, currency: str) -> list[str]:
    whole, _, cents = number.replace(",", "").partition(".")
    major, minor = units.CURRENCIES[currency]
    if not minor:
        return [*numerals.number(number), *units.plural(major)]
    words: list[str] = []
    if int(whole or 0) or not int(cents):
        words = [*numerals.cardinal(int(whole or 0))]
        words += units.singular(major) if int(whole or 0) == 1 else units.plural(major)
    if int(cents):
        words += ["and"] if words else []
        words += numerals.cardinal(int(cents))
        words += units.singular(minor) if int(cents) == 1 else units.plural(minor)
    return words
