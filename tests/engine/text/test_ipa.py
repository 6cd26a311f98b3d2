from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.text.arpabet import PHONES
from antiphon.engine.text.ipa import arpabet_to_ipa, ipa_to_arpabet


@pytest.mark.parametrize(
    ("phones", "ipa"),
    [
        ("HH AH0 L OW1", "həlˈO"),
        ("DH EH1 R", "ðˈɛɹ"),
        ("W AO1 T ER0", "wˈɔTəɹ"),
        ("P AA1 R T IY0", "pˈɑɹTi"),
        ("T AH0 M AA1 T OW2", "təmˈɑtˌO"),
        ("AH0 T EY1 K", "ətˈAk"),
        ("B ER1 D", "bˈɜɹd"),
        ("S T AA1 P", "stˈɑp"),
        ("B AH1 T ER0", "bˈʌTəɹ"),
        ("M EH1 ZH ER0", "mˈɛʒəɹ"),
    ],
)
def test_arpabet_to_ipa(phones: str, ipa: str) -> None:
    assert arpabet_to_ipa(phones.split()) == ipa


def test_symbols_outside_of_the_inventory_are_an_error() -> None:
    with pytest.raises(KeyError):
        arpabet_to_ipa(["QQ"])


@given(st.lists(st.sampled_from(sorted(PHONES)), max_size=12))
def test_there_and_back(phones: list[str]) -> None:
    # `AH0 R` and `ER0` sound and are written alike in IPA.
    text = " ".join(phones).replace("AH0 R", "ER0")
    assert " ".join(ipa_to_arpabet(arpabet_to_ipa(text.split()))) == text
