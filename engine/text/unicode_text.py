"""Make the many ways to write a character one, drop what is not spoken, romanise other scripts."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from anyascii import anyascii

_KEYCAP = re.compile(r"[0-9#*]\ufe0f?\u20e3")
_EMOTICON = re.compile(r"[:;=][-'^]?[)(DPpOo|/\\\]\[]|<3+|\^_*\^")

_BEFORE_NFKC = {
    ord("™"): None,
    ord("º"): "°",
    ord("µ"): "μ",
    ord("’"): "'",
    ord("‘"): "'",
    ord("ʼ"): "'",
    ord("＇"): "'",
    ord("…"): "...",
    ord("。"): ".",
    ord("、"): ",",
    ord("،"): ",",
    ord("؛"): ";",
    ord("؟"): "?",
    ord("।"): ".",
    ord("−"): "-",
    ord("‐"): "-",
    ord("‑"): "-",
    ord("﹣"): "-",
}
"""What compatibility normalisation would merge with something spoken differently (m² and m2), and
marks of other scripts. Em and en dashes stay: they mean other things than a hyphen."""

_DEGREES = "°℃℉"


_LOWERED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
_SUPERSCRIPT = re.compile(r"(?<=\w)⁻?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")


def clean(text: str) -> str:
    """Return a chunk in one normal form, without emoji, emoticons and invisible characters."""
    if text.isascii():
        return _EMOTICON.sub("", text) if _EMOTICON.fullmatch(text) else text
    text = _KEYCAP.sub("", text)
    text = _SUPERSCRIPT.sub(lambda found: "^" + found.group().translate(_LOWERED), text)
    text = _spell_fractions(text).translate(_BEFORE_NFKC)
    return unicodedata.normalize("NFKC", drop_silent(text))


def drop_silent(text: str) -> str:
    """Leave out emoji, dingbats, joiners and other characters without a reading."""
    return "".join(c for c in text if c.isascii() or c in _DEGREES or not _is_silent(c))


def _is_silent(character: str) -> bool:
    """Emoji, dingbats, modifiers, joiners, private and unassigned code points."""
    return unicodedata.category(character) in ("So", "Sk", "Cf", "Co", "Cn", "Cc", "Me") or (
        "\ufe00" <= character <= "\ufe0f"
    )


def _spell_fractions(text: str) -> str:
    """`2½` → `2+1/2`, `½` → `1/2`."""
    out: list[str] = []
    for character in text:
        if unicodedata.decomposition(character).startswith("<fraction>"):
            plain = unicodedata.normalize("NFKC", character).replace("\u2044", "/")
            out.append("+" + plain if out and out[-1].isdigit() else plain)
        else:
            out.append(character)
    return "".join(out)


@lru_cache(maxsize=4096)
def is_latin(character: str) -> bool:
    """Whether English has a reading for the letter as it is."""
    return character.isascii() or unicodedata.name(character, "").startswith("LATIN ")


def romanise(word: str) -> list[str]:
    """Return words in Latin letters for a word of any script; empty if nothing in it has a sound.

    English has no reading for other scripts, and dropping words would be worse than an accent, so
    they are transliterated (`Привет` → `Privet`, `北` → `Bei`). A single Greek letter is read by
    its name (`π` → `pi`). Latin letters with accents are kept.
    """
    if all(is_latin(c) or c == "'" for c in word):
        return [word]
    if len(word) == 1:
        name = unicodedata.name(word, "")
        if name.startswith("GREEK ") and "LETTER " in name:
            return [name.split("LETTER ")[1].split()[0].lower()]
    plain = "".join(c if is_latin(c) else anyascii(c) for c in word)
    return re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)*", plain)
