"""Equality with the reference implementation from `after_wetext` on."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from antiphon.engine.checkpoint.config import ModelGeneration
from antiphon.engine.checkpoint.tokenizer import TextTokenizer, load_tokenizer
from antiphon.engine.text.upstream_split import MAX_UNITS, has_chinese, split, tidy
from tests.golden import golden_path


@cache
def tokenizer(version: int) -> TextTokenizer:
    return load_tokenizer(
        golden_path(f"tiny-cosyvoice{version}/CosyVoice-BlankEN"), ModelGeneration(version)
    )


def cases(version: int) -> list[dict[str, Any]]:
    loaded = json.loads(golden_path(f"text/text_v{version}.json").read_text())
    return [case for case in loaded["cases"] if case["after_wetext"] is not None]


@pytest.mark.parametrize("version", [2, 3])
def test_pieces_and_ids_are_upstreams(version: int) -> None:
    found = cases(version)
    assert len(found) == 42
    encode = tokenizer(version).encode
    for case in found:
        chinese = has_chinese(case["input"])
        assert chinese == case["chinese"]
        tidied = tidy(case["after_wetext"], chinese=chinese)
        assert tidied == case["nosplit"]
        pieces = split(tidied, lambda text: len(encode(text)), chinese=chinese)
        assert pieces == case["split"], case["input"]
        assert [encode(piece) for piece in pieces] == case["ids_of_split"]


def test_left_over_digits_are_spelled() -> None:
    assert tidy("room 42b", chinese=False) == "room forty twob"


@pytest.mark.parametrize("text", ["", "...", "?!", "——", "😀", "。。"])
def test_nothing_to_speak_gives_no_pieces(text: str) -> None:
    assert split(text, len, chinese=has_chinese(text)) == []


def test_long_text_is_cut_at_sentence_ends_only() -> None:
    text = " ".join(["one two three four."] * 500)
    pieces = split(text, len, chinese=False)
    assert "".join(pieces) == text
    assert all(len(piece) <= MAX_UNITS for piece in pieces)
    assert split("word " * 2000, len, chinese=False) == ["word " * 2000 + "."]


def test_a_short_rest_joins_the_piece_before_it() -> None:
    text = "a" * 70 + "." + "b" * 30 + ". c."
    assert split(text, len, chinese=False) == ["a" * 70 + ".", "b" * 30 + ". c."]
    assert split("a" * 75 + "." + "b" * 10 + ".", len, chinese=False) == [
        "a" * 75 + "." + "b" * 10 + "."
    ]
