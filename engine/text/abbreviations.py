"""Written abbreviations and Roman numerals, read by what stands around them."""

from __future__ import annotations

import re

from antiphon.engine.text import numerals
from antiphon.engine.text.table import table
from antiphon.engine.text.view import DIGITS_ONLY, Reading, View

_TITLES = table(
    """
    Mr: mister; Mrs: missus; Ms: miz; Prof: professor; Rev: reverend; Gen: general;
    Col: colonel; Capt: captain; Lt: lieutenant; Sgt: sergeant; Hon: honorable; Sen: senator;
    Rep: representative; Gov: governor
    """
)
"""Before a name. With their stop they never end a sentence."""

_TWO_READINGS = {"Dr": ("doctor", "drive"), "St": ("saint", "street")}
_SAINT_AFTER = {"Mount", "Mt", "Port", "Lake", "Fort", "Cape"}

_WITH_STOP = table(
    """
    etc: et cetera; vs: versus; approx: approximately; dept: department; Jr: junior;
    Sr: senior; Inc: incorporated; Ltd: limited; Co: company; Corp: corporation; Ave: avenue;
    Blvd: boulevard; Rd: road; Mt: mount; Ft: fort; Mon: Monday; Tue: Tuesday; Tues: Tuesday;
    Wed: Wednesday; Thu: Thursday; Thurs: Thursday; Fri: Friday; Sat: Saturday; Sun: Sunday;
    Fig: figure; fig: figure; Vol: volume; vol: volume; Sec: section; Ch: chapter;
    est: established; al: al; Univ: university; Dept: department; min: minutes; max: maximum;
    temp: temperature; ext: extension; pp: pages; tsp: teaspoon; tbsp: tablespoon;
    incl: including; excl: excluding; Apt: apartment; pop: population; pls: please;
    Hwy: highway
    """
)
_ENDS_OFTEN = {"etc", "Inc", "Ltd", "Co", "Corp", "Ave", "Blvd", "Rd", "al", "est"}
"""Their stop is also the sentence's when a capital follows."""

_WITHOUT_STOP = table(
    """
    vs: versus; w/: with; w/o: without; b/c: because; aka: A K A
    """
)
_DOTTED = table(
    """
    e.g: for example; i.e: that is; a.m: AM; p.m: PM; a.k.a: also known as; ph.d: PhD; b.c: BC;
    a.d: AD; n.b: note
    """
)
_DAY = "(Mon|Tue|Tues|Wed|Thu|Thurs|Fri|Sat|Sun)"
_DAYS = re.compile(f"{_DAY}[-–]{_DAY}")
_DOTTED_LETTERS = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]")
_NUMBERED = {"No": "number", "Nos": "numbers", "no": "number", "p": "page", "pp": "pages"}
_ROMAN = re.compile(r"(?=[IVX]{2,})(X{0,3})(IX|IV|V?I{0,3})")
_ROMAN_VALUES = {"I": 1, "V": 5, "X": 10}


def read_abbreviation(view: View) -> Reading | None:
    """`Dr. Smith`, `Elm Dr.`, `e.g.`, `etc.`, `U.S.`, `No. 5`, `vs`, `J. Smith`."""
    token = view.token
    core = token.core
    if core in _WITHOUT_STOP and not token.tail.startswith("."):
        return Reading(_WITHOUT_STOP[core].split())
    if days := _DAYS.fullmatch(core):
        return Reading([_WITH_STOP[days[1]], "to", _WITH_STOP[days[2]]])
    if core.lower() in _DOTTED:
        return Reading(_DOTTED[core.lower()].split(), mark=_mark_after_stop(view, ends=False))
    if _DOTTED_LETTERS.fullmatch(core):
        return Reading([core.replace(".", "").upper()], mark=_mark_after_stop(view, ends=False))
    if not token.tail.startswith("."):
        return None
    if core in _TITLES:
        return Reading([_TITLES[core]], mark=token.tail[1:2].strip("\"')"))
    if core in _TWO_READINGS:
        return _read_by_neighbours(view)
    if core in _NUMBERED and token.tail == ".":
        following = view.after(1, DIGITS_ONLY)
        if following and following.core[0].isdigit():
            return Reading([_NUMBERED[core]], mark="")
    if core in _WITH_STOP and (core != "al" or view.previous == "et"):
        mark = _mark_after_stop(view, ends=core in _ENDS_OFTEN)
        if not (core in _AMBIGUOUS and mark == "."):
            return Reading(_WITH_STOP[core].split(), mark=mark)
    if len(core) == 1 and core.isalpha() and core.isupper() and _is_initial(view):
        return Reading([core], mark=_mark_after_stop(view, ends=False))
    return None


_WORDS_TOO = "pop incl Mon Sat Sun Wed min max temp Ch Co Sec Fig fig"
_AMBIGUOUS = frozenset(_WORDS_TOO.split())
"""Words as well: `in the sun.`, `He sat.`; as a sentence's last word they stay what they are."""


def read_roman(view: View) -> Reading | None:
    """`World War II`, `Chapter IV`: a numeral of two letters and more after a capitalised word."""
    core = view.token.core
    found = _ROMAN.fullmatch(core)
    if found is None or not view.previous[:1].isupper() or view.previous.isupper():
        return None
    values = [_ROMAN_VALUES[letter] for letter in core]
    following = [*values[1:], 0]
    total = sum(-v if v < n else v for v, n in zip(values, following, strict=True))
    return Reading(numerals.cardinal(total))


def _mark_after_stop(view: View, *, ends: bool) -> str:
    """Mark after an abbreviation whose own stop is not one.

    The stop ends the sentence too where the line ends, and for some where a capital follows.
    """
    tail = view.token.tail
    others = tail[1:] if tail.startswith(".") else tail
    for mark in "?!.;:,":
        if mark in others:
            return mark
    if not tail.startswith("."):
        return ""
    following = view.initial()
    return "." if not following or (ends and following.isupper()) else ""


def _read_by_neighbours(view: View) -> Reading:
    """Doctor or drive, saint or street.

    A capitalised word after it makes it a title (`Dr. Smith`, `St. Louis`), unless a capitalised
    word in mid-sentence or after a house number stands before it (`12 Elm St. Springfield`).
    """
    title, road = _TWO_READINGS[view.token.core]
    others = view.token.tail[1:]
    following = "" if others else view.initial()
    before = view.before
    named = view.previous[:1].isupper() and view.previous not in _SAINT_AFTER
    addressed = named and (
        any(token.core[0].isdigit() for token in before) or (title == "saint" and len(before) > 1)
    )
    if following.isupper() and not addressed:
        return Reading([title], mark="")
    ends = not following or following.isupper()
    return Reading([road], mark=_mark_after_stop(view, ends=True) if ends or others else "")


def _is_initial(view: View) -> bool:
    """`J. Smith`, `John F. Kennedy`, but not `plan B. Then`, nor `So do I. You`."""
    if view.token.core == "I" and view.previous:
        return False
    return not view.previous or view.previous[0].isupper()
