"""Words → byte-pair ids, on the tiny official-layout tokenizer."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers

from antiphon.engine.errors import InvalidRequest
from antiphon.engine.text.bpe_stream import SPOKEN_TAGS, BpeTextStream
from antiphon.engine.text.text_stream import TextPiece
from tests.engine.text.helpers import CUTS, SPEAKABLE, run, split

_STEERING = ["<|endofprompt|>", "<|im_start|>"]


class _Tokenizer:
    """Byte-level BPE with the specials of CosyVoice 3, trained on a sentence."""

    def __init__(self) -> None:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet)
        tokenizer.train_from_iterator(["the quick brown fox and the lazy dog, there"], trainer)
        specials = [*sorted(SPOKEN_TAGS), *_STEERING, "[T]", "[UW1]"]
        tokenizer.add_special_tokens([AddedToken(t, special=True) for t in specials])
        self.inner = tokenizer

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self.inner.encode(text, add_special_tokens=False).ids
        return ids

    def id(self, token: str) -> int:
        found: int = self.inner.token_to_id(token)
        return found


@cache
def tokenizer() -> _Tokenizer:
    return _Tokenizer()


def pieces(*text: str, **options: Any) -> list[TextPiece]:
    return run(BpeTextStream(tokenizer(), **options), text)


def ids(*text: str, **options: Any) -> list[int]:
    return [identifier for piece in pieces(*text, **options) for identifier in piece.ids]


@pytest.mark.parametrize(
    ("written", "encoded"),
    [
        ("Hello, the fox!", "Hello, the fox!"),
        ("It costs $5.", "It costs five dollars."),
        ("one — two", "one, two"),
        ("[laughter] That is <strong>so</strong> funny[breath].",
         "[laughter] That is <strong>so</strong> funny [breath]."),
        ("say [T][UW1][T][UW1]!", "say [T][UW1][T][UW1]!"),
        ("你好，世界。", "你好，世界。"),
        ("我爱 Python 技术", "我爱Python技术"),
        ("<em>x</em> **y**", "x y"),
    ],
)  # fmt: skip
def test_ids_are_those_of_the_spoken_text(written: str, encoded: str) -> None:
    assert ids(written) == tokenizer().encode(encoded)


def test_other_languages_keep_their_numbers() -> None:
    assert ids("今天是2024年。", language="zh") == tokenizer().encode("今天是2024年。")


@pytest.mark.parametrize("steering", _STEERING)
@pytest.mark.parametrize(
    "around", ["{}", "a{}b", "**{}**", "[x]({})", "{}{}", "<|{}|>", "|{}", "a{}b||"]
)
def test_a_callers_text_cannot_steer_the_model(steering: str, around: str) -> None:
    forbidden = {tokenizer().id(token) for token in _STEERING}
    hidden = steering[:5] + "**" + steering[5:]
    for language, token in product(("en", "zh"), (steering, hidden)):
        text = around.replace("{}", token)
        assert not forbidden & set(ids(text, language=language))
        assert not forbidden & set(ids(*text, language=language))


@settings(max_examples=150, deadline=None)
@given(SPEAKABLE, CUTS)
def test_every_split_gives_the_same_pieces(text: str, cuts: list[int]) -> None:
    for language in ("en", "ja"):
        assert pieces(*split(text, cuts), language=language) == pieces(text, language=language)


def test_controls_are_refused_before_anything_is_taken() -> None:
    stream = BpeTextStream(tokenizer())
    with pytest.raises(InvalidRequest):
        stream.push("Hello \x00")
    assert stream.end() == []
