"""Money, units, percentages, ordinals, ranges, fractions and plain numbers."""

from __future__ import annotations

import re

from antiphon.engine.text import numbers
from antiphon.engine.text.numbers import NUMBER
from antiphon.engine.text.view import DIGITS_ONLY, Reading, View

_CURRENCIES = {
    "$": ("dollar", "cent"),
    "US$": ("U S dollar", "cent"),
    "€": ("euro", "cent"),
    "£": ("pound", "penny"),
    "¥": ("yen", ""),
    "₹": ("rupee", "paisa"),
    "₩": ("won", ""),
    "₽": ("ruble", "kopek"),
    "USD": ("U S dollar", "cent"),
    "EUR": ("euro", "cent"),
    "GBP": ("pound", "penny"),
    "JPY": ("yen", ""),
    "CHF": ("Swiss franc", "centime"),
}
_UNCHANGED_PLURALS = {"yen", "won", "hertz", "percent"}
_MAGNITUDES = {
    **{"k": "thousand", "K": "thousand", "M": "million", "m": "million", "mn": "million"},
    **{"B": "billion", "b": "billion", "bn": "billion", "T": "trillion", "tn": "trillion"},
    **{word: word for word in ("hundred", "thousand", "million", "billion", "trillion")},
}
_UNITS = {
    **{"km": "kilometer", "m": "meter", "cm": "centimeter", "mm": "millimeter", "nm": "nanometer"},
    **{"mi": "mile", "ft": "foot", "yd": "yard", "kg": "kilogram", "g": "gram", "mg": "milligram"},
    **{"lb": "pound", "lbs": "pound", "oz": "ounce", "l": "liter", "L": "liter"},
    **{"ml": "milliliter", "mL": "milliliter", "s": "second", "ms": "millisecond"},
    **{"sec": "second", "secs": "second", "min": "minute", "mins": "minute", "h": "hour"},
    **{"hr": "hour", "hrs": "hour", "Hz": "hertz", "kHz": "kilohertz", "MHz": "megahertz"},
    **{"GHz": "gigahertz", "B": "byte", "kB": "kilobyte", "KB": "kilobyte", "MB": "megabyte"},
    **{"GB": "gigabyte", "TB": "terabyte", "Mbps": "megabit per second"},
    **{"Gbps": "gigabit per second", "mph": "mile per hour", "kph": "kilometer per hour"},
    **{"km/h": "kilometer per hour", "m/s": "meter per second", "W": "watt", "kW": "kilowatt"},
    **{
        "MW": "megawatt",
        "kWh": "kilowatt hour",
        "V": "volt",
        "mA": "milliamp",
        "mAh": "milliamp hour",
    },
    **{"°": "degree", "°C": "degree Celsius", "°F": "degree Fahrenheit", "%": "percent"},
    **{"m^2": "square meter", "km^2": "square kilometer", "m^3": "cubic meter"},
    **{"cm^2": "square centimeter", "cm^3": "cubic centimeter", "ft^2": "square foot"},
    **{
        "px": "pixel",
        "kcal": "kilocalorie",
        "cal": "calorie",
        "Pa": "pascal",
        "hPa": "hectopascal",
    },
    **{"dB": "decibel", "J": "joule", "kJ": "kilojoule", "μm": "micrometer", "μs": "microsecond"},
}
_ATTACHED_ONLY = {"B", "J", "V", "W", "in"}
"""`5 W` is more often a letter; `5W` is a unit."""
_SIGNS = {"-": "minus", "+": "plus", "~": "about", "≈": "about", "±": "plus or minus"} | {
    **{"<": "less than", ">": "more than", "≤": "at most", "≥": "at least"},
}
_CURRENCY = "|".join(re.escape(sign) for sign in sorted(_CURRENCIES, key=len)[::-1])
_QUANTITY = re.compile(
    rf"(?P<sign>[-+~≈±<>≤≥]*)(?P<before>{_CURRENCY})?(?P<minus>-)?(?P<number>{NUMBER})"
    rf"(?:(?P<to>[-–—])(?P<before2>{_CURRENCY})?(?P<number2>{NUMBER}))?"
    r"(?P<suffix>[^\W\d_]+/[^\W\d_]+|[^\W\d_]+(?:\^[23])?|°[CF]?|%)?"
    rf"(?P<after>{_CURRENCY})?(?P<more>\+)?(?:/(?P<per>[^\W\d_]+))?"
)
_SUFFIXES = {"in": "inch", "x": "x", **_UNITS}
_FOLLOWING = frozenset((*_MAGNITUDES, *_UNITS, *_CURRENCIES))
_PER = {
    "mo": "month",
    "yr": "year",
    "hr": "hour",
    "h": "hour",
    "s": "second",
    "min": "minute",
    "kg": "kilogram",
}
_FRACTION = re.compile(
    r"(?P<sign>[-+~]?)(?:(?P<whole>\d{1,6})\+)?(?P<top>\d{1,3})/(?P<bottom>\d{1,3})"
)
_IDIOMS = {"24/7": "twenty four seven", "9/11": "nine eleven"}
_COMMON_DENOMINATORS = {*range(2, 11), 12, 16, 20, 32, 64, 100}


def read_quantity(view: View) -> Reading | None:
    """`$5.50`, `€3M`, `5 km`, `20°C`, `99 %`, `3rd`, `1990s`, `10-15`, `-5`, `50+`, `1,234.5`."""
    token = view.token
    found = _QUANTITY.fullmatch(token.core)
    if found is None or _is_phone_like(found):
        return None
    suffix = found["suffix"] or ""
    if not (found["before"] or found["after"] or found["to"] or found["sign"]):
        special = _ordinal_or_decade(found["number"], suffix)
        if special:
            return Reading(special)
    if suffix and suffix not in _SUFFIXES and suffix not in _MAGNITUDES:
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
    if last is None or last.tail != "." or last.core not in _UNITS:
        return None
    return "" if view.initial(used).islower() else "."


def read_fraction(view: View) -> Reading | None:
    """`1/2`, `2 3/4`, `10/10`; a slash between other numbers is read as one."""
    core = view.token.core
    if re.fullmatch(r"\d{1,6}", core) and not view.token.tail:
        following = view.after(1, DIGITS_ONLY)
        found = following and not following.lead and _FRACTION.fullmatch(following.core)
        if found and not found["whole"] and _is_common(found) and not found["sign"]:
            return Reading([*numbers.integer(core), "and", *_spell(found)], used=2)
        return None
    found = _FRACTION.fullmatch(core)
    if found is None:
        return None
    sign = [_SIGNS[found["sign"]]] if found["sign"] else []
    if found["whole"]:
        return Reading([*sign, *numbers.integer(found["whole"]), "and", *_spell(found)])
    if core in _IDIOMS:
        return Reading(_IDIOMS[core].split())
    if _is_common(found):
        return Reading([*sign, *_spell(found)])
    between = ["out", "of"] if found["top"] == found["bottom"] else ["over"]
    return Reading(
        [*sign, *numbers.integer(found["top"]), *between, *numbers.integer(found["bottom"])]
    )


def _is_common(found: re.Match[str]) -> bool:
    top, bottom = int(found["top"]), int(found["bottom"])
    return bottom in _COMMON_DENOMINATORS and 0 < top < bottom


def _spell(found: re.Match[str]) -> list[str]:
    words = numbers.fraction(int(found["top"]), int(found["bottom"]))
    return ["a", *words[1:]] if found["whole"] and words[0] == "one" else words


def _is_phone_like(found: re.Match[str]) -> bool:
    """`555-1234` is dialled, `10-15` is a range."""
    first, second = found["number"], found["number2"] or ""
    return len(first) == 3 and len(second) == 4 and (first + second).isdigit()


def _ordinal_or_decade(number: str, suffix: str) -> list[str] | None:
    if "." in number:
        return None
    if suffix in ("st", "nd", "rd", "th"):
        return numbers.ordinal(int(number.replace(",", "")))
    if suffix == "s" and re.fullmatch(r"(?:\d\d)?\d0", number):
        words = numbers.year(int(number)) if len(number) == 4 else numbers.cardinal(int(number))
        last = words[-1]
        return [*words[:-1], last[:-1] + "ies" if last.endswith("y") else last + "s"]
    return None


def _split_suffix(suffix: str, money: bool) -> tuple[str, str]:
    if suffix in _MAGNITUDES and (
        money or suffix in ("k", "K", "M", "bn", "mn") or len(suffix) > 2
    ):
        return _MAGNITUDES[suffix], ""
    return "", _SUFFIXES.get(suffix, suffix)


def _look_ahead(view: View, magnitude: str, unit: str, currency: str) -> tuple[str, str, str, int]:
    """Take a magnitude, then a unit or a currency code from the tokens that follow."""
    used = 1
    while not unit and (following := view.after(used, _FOLLOWING)):
        word = following.core
        if following.lead or used == 3:
            break
        if not magnitude and word in _MAGNITUDES and len(word) > 1:
            magnitude = _MAGNITUDES[word]
        elif not currency and word in _CURRENCIES:
            currency = word
        elif not currency and word in _UNITS and word not in _ATTACHED_ONLY:
            unit = _UNITS[word]
        else:
            break
        used += 1
        if following.tail:
            break
    return magnitude, unit, currency, used


def _amount(found: re.Match[str], magnitude: str, unit: str, currency: str) -> list[str]:
    number, second = found["number"], found["number2"]
    if second:
        low, high = numbers.bare(number), numbers.bare(second)
        return [*low, "to", *high, *_noun(magnitude, unit, currency, one=False)]
    if currency and not magnitude and not unit and re.fullmatch(r"[\d,]*\.\d\d", number):
        return _money(number, currency)
    if not (magnitude or unit or currency):
        return numbers.bare(number)
    one = numbers.is_one(number) and not magnitude
    return [*numbers.number(number), *_noun(magnitude, unit, currency, one)]


def _noun(magnitude: str, unit: str, currency: str, one: bool) -> list[str]:
    noun = _CURRENCIES[currency][0] if currency else unit
    return [*magnitude.split(), *(_singular(noun) if one else _plural(noun))]


def _money(number: str, currency: str) -> list[str]:
    whole, _, cents = number.replace(",", "").partition(".")
    major, minor = _CURRENCIES[currency]
    if not minor:
        return [*numbers.number(number), *_plural(major)]
    words: list[str] = []
    if int(whole or 0) or not int(cents):
        words = [*numbers.cardinal(int(whole or 0))]
        words += _singular(major) if int(whole or 0) == 1 else _plural(major)
    if int(cents):
        words += ["and"] if words else []
        pence = "pence" if minor == "penny" else numbers.plural(minor)
        words += [*numbers.cardinal(int(cents)), minor if int(cents) == 1 else pence]
    return words


def _singular(noun: str) -> list[str]:
    return noun.split()


def _plural(noun: str) -> list[str]:
    """The counted word is the last one before `per`, `Celsius` or `Fahrenheit`."""
    words = noun.split()
    counted = next(
        (i for i, w in enumerate(words) if w in ("per", "Celsius", "Fahrenheit")), len(words)
    )
    if not words or words[counted - 1] in _UNCHANGED_PLURALS or noun == "x":
        return words
    words[counted - 1] = numbers.plural(words[counted - 1])
    return words
