"""Which language a stretch of text is in, told by its script."""

from __future__ import annotations

from dataclasses import dataclass

from antiphon.engine.text.chunks import is_ideograph


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of one language."""

    language: str
    """BCP 47 primary tag: `zh`, `ja`, `ko`, or `en` for everything else, for want of another
    reading."""
    text: str


def spans(text: str, han: str | None = None) -> list[Span]:
    """Cut a text where its script changes; the spans joined are the text.

    Digits, marks and spaces belong to what stands before them (at the start, after them), so
    `我有 5 apples` has a Chinese five. Han characters are in the
    language `han`; where none is told they are Japanese if any kana is in the text.
    """
    han = han or ("ja" if any(is_kana(character) for character in text) else "zh")
    found: list[Span] = []
    start, language = 0, ""
    for index, character in enumerate(text):
        told = _language(character, han)
        if told and language and told != language:
            found.append(Span(language, text[start:index]))
            start = index
        language = told or language
    if start < len(text):
        found.append(Span(language or "en", text[start:]))
    return found


def is_kana(character: str) -> bool:
    """Hiragana or katakana, the long-vowel mark included."""
    return "\u3041" <= character <= "\u30ff" and character != "\u30fb"


def _language(character: str, han: str) -> str:
    if is_ideograph(character):
        return han
    if is_kana(character):
        return "ja"
    if "\uac00" <= character <= "\ud7a3" or "\u1100" <= character <= "\u11ff":
        return "ko"
    return "en" if character.isalpha() else ""
