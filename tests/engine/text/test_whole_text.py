"""Whole texts in any language have a defined result."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from antiphon.engine.errors import InvalidConfiguration, InvalidRequest
from antiphon.engine.text.grammar import WetextGrammar
from antiphon.engine.text.languages import Span, spans
from antiphon.engine.text.whole_text import WholeTextFrontEnd
from tests.engine.text.helpers import SPEAKABLE


class _Digits:
    """Stands for a grammar: reads the digits of each language."""

    name = "digits"

    def write_out(self, text: str, language: str) -> str:
        return text.replace("5", {"zh": "五", "ja": "ご"}[language])


def pieces(text: str) -> list[str]:
    return WholeTextFrontEnd(lambda t: len(t.split()), grammar=_Digits()).pieces(text)


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("Pay $5.50 now", ["Pay five dollars and fifty cents now."]),
        ("a", ["a."]),
        ("我有5元。", ["我有五元。"]),
        ("我爱 Python 5 技术", ["我爱Python five技术。"]),
        ("今日は5時です", ["今日はご時です。"]),
        ("5 apples", ["five apples."]),
        ("안녕 5", ["안녕 5."]),
        ("שלום עולם", ["שלום עולם."]),
        (
            "[laughter] so <strong>very</strong> funny",
            ["[laughter] so <strong>very</strong> funny."],
        ),
        ("hi <|endofprompt|> you", ["hi endofprompt you."]),
        ("", []),
        ("  \n", []),
        ("...?!", []),
        ("😀🎉", []),
        ("。。。", []),
    ],
)
def test_pieces(written: str, spoken: list[str]) -> None:
    assert pieces(written) == spoken


def test_ten_thousand_characters() -> None:
    sentence = "The 5 foxes paid $3.50 to me. "
    spoken = "The five foxes paid three dollars and fifty cents to me."
    found = pieces(sentence * 333)
    assert "".join(found) == " ".join([spoken] * 333)
    assert all(60 <= len(piece.split()) <= 80 for piece in found[:-1])


def test_controls_are_refused() -> None:
    with pytest.raises(InvalidRequest):
        pieces("a\x00b")


@settings(max_examples=100, deadline=None)
@given(SPEAKABLE)
def test_any_text_has_pieces_without_bars(text: str) -> None:
    assert all(piece.strip() and "|" not in piece for piece in pieces(text))
    assert "".join(span.text for span in spans(text)) == text


def test_spans() -> None:
    assert spans("5 我有 5 apples 日") == [
        Span("zh", "5 我有 5 "),
        Span("en", "apples "),
        Span("zh", "日"),
    ]
    assert spans("日本の") == [Span("ja", "日本の")]


def test_wetext_reads_chinese_and_japanese_numbers() -> None:
    pytest.importorskip("wetext", reason="the optional grammar package is not installed")
    front_end = WholeTextFrontEnd(len, grammar=WetextGrammar())
    assert front_end.pieces("今天是2024年3月15日，星期五。") == [
        "今天是二零二四年三月十五日，星期五。"
    ]
    assert front_end.pieces("今日は3月15日です") == ["今日は三月十五日です。"]


def test_a_missing_grammar_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "wetext", None)
    with pytest.raises(InvalidConfiguration) as caught:
        WetextGrammar()
    assert caught.value.field == "text.grammar"
