"""Text pieces → ids with the nano checkpoint's own tokenizer, where it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from tokenizers import Tokenizer

from antiphon.engine.errors import InvalidRequest
from antiphon.engine.text.arpabet import PHONES
from antiphon.engine.text.text_stream import ArpabetTextStream, TextPiece
from tests.engine.text.helpers import CUTS, SPEAKABLE, run, split

NANO = Path(__file__).parents[4] / "shared" / "nano" / "CosyVoice-BlankEN" / "tokenizer.json"


class _Inventory:
    """One id for each phone, mark and space: what the checkpoint's tokenizer is to this stage."""

    def __init__(self) -> None:
        names = [" ", *".,!?;:", *(f"[{phone}]" for phone in sorted(PHONES))]
        self.ids = {name: index for index, name in enumerate(names)}

    def encode(self, text: str) -> list[int]:
        tokens = text.replace("[", "\0[").replace("]", "]\0").split("\0")
        return [self.ids[part] for token in tokens for part in ([token] if "[" in token else token)]


def pieces(*text: str) -> list[TextPiece]:
    return run(ArpabetTextStream(_Inventory()), text)


def test_pieces_tell_where_clauses_and_sentences_end() -> None:
    found = [(p.text, p.source_end, p.clause_end, p.sentence_end) for p in pieces("Oh, hi. Yes")]
    assert found == [
        ("Oh", 3, False, False),
        (",", 3, True, False),
        ("hi.", 7, True, True),
        ("Yes", 11, False, False),
        ("", 11, True, True),
    ]


@settings(max_examples=100, deadline=None)
@given(SPEAKABLE, CUTS)
def test_every_split_gives_the_same_pieces(text: str, cuts: list[int]) -> None:
    whole = pieces(text)
    assert pieces(*split(text, cuts)) == whole
    assert all(piece.ids for piece in whole)


def test_unspeakable_text_has_no_ids() -> None:
    assert pieces("😀 ... **") == []


def test_controls_are_refused_before_anything_is_taken() -> None:
    stream = ArpabetTextStream(_Inventory())
    with pytest.raises(InvalidRequest):
        stream.push("Hello \x00")
    assert stream.end() == []


def test_flush_then_more() -> None:
    stream = ArpabetTextStream(_Inventory())
    assert [p.text for p in stream.push("I pay $5")] == ["I", "pay"]
    assert [p.text for p in stream.flush()] == ["five", "dollars"]
    assert [p.text for p in stream.push(" now, ")] == ["now"]
    assert [p.text for p in stream.end()] == ["."]


@pytest.mark.skipif(not NANO.exists(), reason="../shared/nano is absent")
def test_ids_of_pieces_are_the_ids_of_the_whole() -> None:
    tokenizer = Tokenizer.from_file(str(NANO))

    class _Nano:
        def encode(self, text: str) -> list[int]:
            return list(tokenizer.encode(text, add_special_tokens=False).ids)

    text = "Sure, I can cancel the refund right now."
    stream = ArpabetTextStream(_Nano())
    ids = [i for p in [*stream.push(text), *stream.end()] for i in p.ids]
    phones = (
        " [SH][UH1][R], [AY0] [K][AE0][N] [K][AE1][N][S][AH0][L] [DH][AH0] [R][IH0][F][AH1][N][D]"
        " [R][AY1][T] [N][AW1]."
    )
    assert ids == _Nano().encode(phones)
