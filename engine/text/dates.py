"""Dates and times of day."""

from __future__ import annotations

import re
from calendar import month_name

from antiphon.engine.text import numerals
from antiphon.engine.text.view import DIGITS_ONLY, Reading, View

_MONTHS = {name.lower(): index for index, name in enumerate(month_name) if name} | {
    **{name[:3].lower(): index for index, name in enumerate(month_name) if name},
    "sept": 9,
}
_MONTH_NAMES = frozenset(f(name) for name in _MONTHS for f in (str.lower, str.title, str.upper))
_DAY = re.compile(r"(\d{1,2})(?:st|nd|rd|th)?")
_YEAR = re.compile(r"1\d{3}|20\d\d|21\d\d")
_ISO = re.compile(r"(\d{4})-(\d{2})-(\d{2})(?:T(\d{2}):(\d{2})(?::\d{2}(?:\.\d+)?)?(Z?))?")
_SLASHED = re.compile(r"(\d{1,2})([/.-])(\d{1,2})\2(\d{4}|\d{2})")
_TIME = re.compile(r"(\d{1,2}):([0-5]\d)(?::([0-5]\d))?([ap]\.?m)?", re.IGNORECASE)
_HOUR = re.compile(r"(\d{1,2})([ap]\.?m)", re.IGNORECASE)
_TIME_RANGE = re.compile(
    r"(\d{1,2})(?::([0-5]\d))?([ap]\.?m)?[-–](\d{1,2})(?::([0-5]\d))?([ap]\.?m)", re.IGNORECASE
)
_HALF_DAYS = {"am": "AM", "pm": "PM", "a.m": "AM", "p.m": "PM"}
_HALF_DAY_NAMES = frozenset(f(name) for name in _HALF_DAYS for f in (str.lower, str.upper))
_MONTH_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def read_date(view: View) -> Reading | None:
    """`2026-11-30`, `11/30/2026`, `Nov. 30, 2026`, `30 November`, `December 2026`."""
    core = view.token.core
    if iso := _ISO.fullmatch(core):
        return _read_iso(iso)
    if slashed := _SLASHED.fullmatch(core):
        return _read_slashed(slashed)
    if core.lower() in _MONTHS and core[0].isupper():
        return _read_month_first(view)
    if (day := _DAY.fullmatch(core)) and not view.token.tail:
        return _read_day_first(view, int(day[1]))
    return None


def read_time(view: View) -> Reading | None:
    """`7:30 pm`, `19:05`, `7pm`, `7 p.m.`, `10:30:45`, `9am-5pm`."""
    core = view.token.core
    if span := _TIME_RANGE.fullmatch(core):
        start = _clock_words(span[1], span[2], span[3])
        return Reading([*start, "to", *_clock_words(span[4], span[5], span[6])])
    if found := _TIME.fullmatch(core):
        hour, minute = int(found[1]), int(found[2])
        if hour > 24:
            return None
        half, used = _half_day(view, found[4])
        words = _clock(hour, minute, bool(half))
        if found[3]:
            words += ["and", *_count(int(found[3]), "second")]
        return Reading([*words, *half], used, _half_day_mark(view, half, used))
    if found := _HOUR.fullmatch(core):
        half, used = _half_day(view, found[2])
        return Reading([*numerals.cardinal(int(found[1])), *half], 1, _half_day_mark(view, half, 1))
    if re.fullmatch(r"\d{1,2}", core) and not view.token.tail:
        half, used = _half_day(view, None)
        if half:
            words = [*numerals.integer(core), *half]
            return Reading(words, used, _half_day_mark(view, half, used))
    return None


def _half_day(view: View, attached: str | None) -> tuple[list[str], int]:
    if attached:
        return [_HALF_DAYS[attached.lower()]], 1
    if view.token.tail:
        return [], 1
    following = view.after(1, _HALF_DAY_NAMES)
    # "7 am" and "7 AM" are times, "7 Am" is not.
    if following and not following.lead and following.core in _HALF_DAY_NAMES:
        return [_HALF_DAYS[following.core.lower()]], 2
    return [], 1


def _half_day_mark(view: View, half: list[str], used: int) -> str | None:
    """The stop of `p.m.` belongs to the abbreviation unless the line or the sentence ends."""
    token = view.after(1) if used == 2 else view.token
    if not half or token is None or "." not in token.core or not token.tail.startswith("."):
        return None
    if len(token.tail) > 1:
        return None
    following = view.after(used)
    return "." if following is None or following.core[0].isupper() else ""


def _clock_words(hour: str, minute: str | None, half: str | None) -> list[str]:
    halves = [_HALF_DAYS[half.lower()]] if half else []
    return [*_clock(int(hour), int(minute or 0), True), *halves]


def _clock(hour: int, minute: int, twelve_hours: bool) -> list[str]:
    if minute == 0 and twelve_hours:
        return numerals.cardinal(hour)
    if minute == 0:
        exact = ["o'clock"] if 0 < hour <= 12 else ["hundred"] if hour else ["hours"]
        return [*numerals.cardinal(hour), *exact]
    return [
        *numerals.cardinal(hour),
        *(["oh"] if minute < 10 else []),
        *numerals.cardinal(minute),
    ]


def _count(value: int, noun: str) -> list[str]:
    return [*numerals.cardinal(value), noun if value == 1 else noun + "s"]


def _is_day(month: int, day: int) -> bool:
    return 1 <= month <= 12 and 1 <= day <= _MONTH_DAYS[month - 1]


def _spoken(month: int, day: int, year: str = "") -> list[str]:
    spoken = [month_name[month], *numerals.ordinal(day)]
    if not year:
        return spoken
    in_full = int(year) if len(year) == 4 else int(year) + (2000 if int(year) < 70 else 1900)
    return [*spoken[:-1], spoken[-1] + ",", *numerals.year(in_full)]


def _read_iso(found: re.Match[str]) -> Reading | None:
    month, day = int(found[2]), int(found[3])
    if not _is_day(month, day):
        return None
    words = _spoken(month, day, found[1])
    if found[4]:
        words = [*words[:-1], words[-1] + ",", *_clock(int(found[4]), int(found[5]), False)]
        words += ["UTC"] if found[6] else []
    return Reading(words)


def _read_slashed(found: re.Match[str]) -> Reading | None:
    """Month first, as in the United States, unless only day first is a date."""
    first, second, year = int(found[1]), int(found[3]), found[4]
    if found[2] != "/" and len(year) == 2:
        return None
    if found[2] != "." and _is_day(first, second):
        return Reading(_spoken(first, second, year))
    if _is_day(second, first):
        return Reading(_spoken(second, first, year))
    return Reading(_spoken(first, second, year)) if _is_day(first, second) else None


def _read_month_first(view: View) -> Reading | None:
    token = view.token
    month = _MONTHS[token.core.lower()]
    shortened = token.core.lower() != month_name[month].lower()
    if token.tail not in ("", "."):
        return Reading([month_name[month]]) if shortened and token.tail.startswith(".") else None
    if token.tail == "." and not shortened:
        return None
    following = view.after(1, DIGITS_ONLY)
    day = following and not following.lead and _DAY.fullmatch(following.core)
    if following and day and _is_day(month, int(day[1])):
        if following.tail in ("", ","):
            year = view.after(2, DIGITS_ONLY)
            if year and not year.lead and _YEAR.fullmatch(year.core):
                return Reading(_spoken(month, int(day[1]), year.core), used=3)
        return Reading(_spoken(month, int(day[1])), used=2)
    if following and not following.lead and _YEAR.fullmatch(following.core):
        return Reading([month_name[month], *numerals.year(int(following.core))], used=2)
    if shortened and (token.tail or following):
        return Reading([month_name[month]], mark="")
    return None


def _read_day_first(view: View, day: int) -> Reading | None:
    following = view.after(1, _MONTH_NAMES)
    if not following or following.lead or following.core not in _MONTH_NAMES:
        return None
    month = _MONTHS[following.core.lower()]
    if not _is_day(month, day):
        return None
    spoken = ["the", *numerals.ordinal(day), "of", month_name[month]]
    if following.tail not in ("", ".", ","):
        return Reading(spoken, used=2)
    year = view.after(2, DIGITS_ONLY)
    if year and not year.lead and _YEAR.fullmatch(year.core):
        return Reading([*spoken, *numerals.year(int(year.core))], used=3)
    return Reading(spoken, used=2)
