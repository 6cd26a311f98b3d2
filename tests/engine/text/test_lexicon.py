from __future__ import annotations

import json
import string
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engine.text.arpabet import PHONES
from antiphon.engine.text.lexicon import WEAK_FORMS, load_dictionary, pronounce


def read(word: str) -> str:
    return " | ".join(" ".join(group) for group in pronounce(word))


def test_the_dictionary_is_there() -> None:
    assert load_dictionary() > 120_000


@pytest.mark.parametrize(
    ("word", "phones"),
    [
        ("weather", "W EH1 DH ER0"),
        ("NASA", "N AE1 S AH0"),
        ("FBI", "EH1 F B IY1 AY1"),
        ("GPU", "JH IY1 | P IY1 | Y UW1"),
        ("GPUs", "JH IY1 | P IY1 | Y UW1 Z"),
        ("US", "Y UW1 | EH1 S"),
        ("us", "AH0 S"),
        ("a", "AH0"),
        ("Lisa's", "L IY1 S AH0 Z"),
        ("café", "K AH0 F EY1"),
        ("www", "D AH1 B AH0 L Y UW0 | D AH1 B AH0 L Y UW0 | D AH1 B AH0 L Y UW0"),
        ("ChatGPT", "CH AE1 T | JH IY1 | P IY1 | T IY1"),
        ("quokka", "K W AA1 K AH0"),
        ("unfriending", "AH0 N F R EH1 N D IH0 NG"),
    ],
)
def test_pronounce(word: str, phones: str) -> None:
    assert read(word) == phones


@settings(max_examples=150, deadline=None)
@given(st.text(string.ascii_letters + "éüñßø", min_size=1, max_size=45))
def test_every_word_has_a_reading(word: str) -> None:
    groups = pronounce(word)
    assert groups
    assert all(group and set(group) <= PHONES for group in groups)


def test_weak_forms_are_those_of_the_checkpoint() -> None:
    path = Path(__file__).parents[4] / "shared" / "nano" / "README.md"
    if not path.exists():
        pytest.skip("../shared/nano is absent")
    line = next(x for x in path.read_text().splitlines() if x.startswith("- weak forms:"))
    listed = dict(item.strip().split(" ") for item in line.partition(":")[2].split(";"))
    assert {w: "".join(f"[{p}]" for p in phones) for w, phones in WEAK_FORMS.items()} == listed


def test_sentences_file_is_the_checkpoints() -> None:
    ours = Path(__file__).parents[2] / "data" / "nano_sentences.json"
    assert len(json.loads(ours.read_text())) == 10
