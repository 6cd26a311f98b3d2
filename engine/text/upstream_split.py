"""Whole texts cut into pieces by the reference implementation's rules (CosyVoice, golden README).

The published models were tuned on pieces cut like this, so whole texts for them are too. The stages
take text that a grammar has already written out in words (`whole_text`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from antiphon.engine.text import numerals

MAX_UNITS = 80
"""A piece is closed before a sentence that would make it longer than this, …"""
MIN_UNITS = 60
"""… provided it is longer than this already."""
MERGE_UNITS = 20
"""A last piece shorter than this joins the one before it."""

_CHINESE_ENDS = "。？！；：、.?!;"
_ENGLISH_ENDS = ".?!;:"
_CLOSING_QUOTES = '"”'
_BRACKETS = str.maketrans({c: "" for c in "（）【】`"} | {"²": "平方", "³": "立方"})


def has_chinese(text: str) -> bool:
    """Whether any Han character of the basic block is in it: then all of it is read as Chinese."""
    return any("\u4e00" <= character <= "\u9fff" for character in text)


def tidy(text: str, *, chinese: bool) -> str:
    """Return a written-out text as the tokenizer wants it, before it is split.

    Chinese: no line breaks, no spaces but those between Latin words, Chinese full stops, no
    brackets. English: digits that the grammar left over are spelled out.
    """
    if not chinese:
        return re.sub(r"\d+", lambda found: " ".join(numerals.integer(found.group())), text)
    text = _drop_spaces(text.replace("\n", ""))
    text = text.replace(".", "。").replace(" - ", "，").translate(_BRACKETS).replace("——", " ")
    return re.sub(r"[，,、]+$", "。", text)


def split(text: str, count_tokens: Callable[[str], int], *, chinese: bool) -> list[str]:
    """Cut a tidy text into pieces of about `MIN_UNITS` to `MAX_UNITS`.

    Units are characters in Chinese and tokens of the model's own tokenizer in English, so English
    pieces differ from model to model. A sentence longer than `MAX_UNITS` stays whole: nothing is
    cut at commas. Pieces of punctuation and symbols only are left out.
    """
    measure = len if chinese else count_tokens
    pieces = _pack(_sentences(text, chinese), measure)
    return [piece for piece in pieces if not _is_unspoken(piece)]


def _drop_spaces(text: str) -> str:
    """Keep a space only between two ASCII characters that are no spaces themselves."""
    padded = f" {text} "
    return "".join(
        character
        for before, character, after in zip(padded, text, padded[2:], strict=False)
        if character != " " or (_is_ascii_mark(before) and _is_ascii_mark(after))
    )


def _is_ascii_mark(character: str) -> bool:
    return character.isascii() and character != " "


def _sentences(text: str, chinese: bool) -> list[str]:
    """Cut after each end mark; a closing quote goes with it, a repeated mark is dropped."""
    ends = _CHINESE_ENDS if chinese else _ENGLISH_ENDS
    if not text:
        return []
    if text[-1] not in ends:
        text += "。" if chinese else "."
    sentences: list[str] = []
    start = 0
    for index, character in enumerate(text):
        if character not in ends:
            continue
        if index > start:
            sentences.append(text[start : index + 1])
        start = index + 1
        if text[start : start + 1] in tuple(_CLOSING_QUOTES) and sentences:
            sentences[-1] += text[start]
            start += 1
    return sentences


def _pack(sentences: list[str], measure: Callable[[str], int]) -> list[str]:
    pieces: list[str] = []
    current = ""
    for sentence in sentences:
        if measure(current + sentence) > MAX_UNITS and measure(current) > MIN_UNITS:
            pieces.append(current)
            current = ""
        current += sentence
    if pieces and measure(current) < MERGE_UNITS:
        pieces[-1] += current
    elif current:
        pieces.append(current)
    return pieces


def _is_unspoken(piece: str) -> bool:
    return all(unicodedata.category(character)[0] in "PS" for character in piece)
