"""Words → phone tokens, as the nano checkpoint's README says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings

from antiphon.engine.text.arpabet import PHONES
from antiphon.engine.text.normalizer import StreamingNormalizer
from antiphon.engine.text.phone_stream import ArpabetFrontEnd, PhonePiece
from tests.engine.text.helpers import CUTS, TEXTS, split

SENTENCES = json.loads((Path(__file__).parents[2] / "data" / "nano_sentences.json").read_text())


def phonemise(*pieces: str) -> list[PhonePiece]:
    normalizer, phones = StreamingNormalizer(), ArpabetFrontEnd()
    out = [p for piece in pieces for p in phones.push(normalizer.push(piece))]
    return [*out, *phones.push(normalizer.end()), *phones.end()]


def text(*pieces: str) -> str:
    return "".join(piece.phones for piece in phonemise(*pieces))


@pytest.mark.parametrize("sentence", SENTENCES, ids=lambda s: s["text"])
def test_held_out_sentences_of_the_checkpoint(sentence: dict[str, str]) -> None:
    assert text(sentence["text"]) == sentence["phonemes"]
    assert text(*sentence["text"]) == sentence["phonemes"]


@pytest.mark.parametrize(
    ("written", "phones"),
    [
        ("the apple.", " [DH][IY0] [AE1][P][AH0][L]."),
        ("the pear.", " [DH][AH0] [P][EH1][R]."),
        ("the FBI.", " [DH][IY0] [EH1][F][B][IY1][AY1]."),
        ("the [OW1]!", " [DH][IY0] [OW1]!"),
        ("the", " [DH][AH0]."),
        ("the, end", " [DH][AH0], [EH1][N][D]."),
        ("well-known", " [W][EH1][L] [N][OW1][N]."),
        ("say [T][UW1][T]?", " [S][EY1] [T][UW1][T]?"),
        ("one — two", " [W][AH1][N], [T][UW1]."),
        ("as follows:", " [AE0][Z] [F][AA1][L][OW0][Z]."),
        ("😀", ""),
    ],
)
def test_phones(written: str, phones: str) -> None:
    assert text(written) == phones


@settings(max_examples=150, deadline=None)
@given(TEXTS, CUTS)
def test_every_split_gives_the_same_tokens(written: str, cuts: list[int]) -> None:
    whole = phonemise(written)
    assert phonemise(*split(written, cuts)) == whole
    tokens = [token for piece in whole for token in piece.tokens]
    assert all(t in " .,!?;:" or t.strip("[]") in PHONES for t in tokens)
    assert [p.source_end for p in whole] == sorted(p.source_end for p in whole)
    if tokens:
        assert tokens[0] == " "
        assert tokens[-1] in ".!?"


def test_the_waits_for_the_sound_that_follows() -> None:
    normalizer, phones = StreamingNormalizer(), ArpabetFrontEnd()
    assert phones.push(normalizer.push("the ")) == []
    assert [p.phones for p in phones.push(normalizer.push("apple "))] == [
        " [DH][IY0]",
        " [AE1][P][AH0][L]",
    ]


def test_flush_releases_what_waits() -> None:
    normalizer, phones = StreamingNormalizer(), ArpabetFrontEnd()
    phones.push(normalizer.push("Sure, "))
    assert [p.phones for p in phones.flush()] == [","]
    assert phones.push(normalizer.push("the ")) == []
    assert [p.phones for p in phones.flush()] == [" [DH][AH0]"]
    assert [p.phones for p in phones.end()] == ["."]
    assert phones.end() == []
