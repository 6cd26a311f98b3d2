"""ARPABET to and from the preset voices' symbols (Kokoro's alphabet, as `hibari-tts` uses it)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from antiphon.engine.text.arpabet import is_vowel

_VOWELS = {
    **{"AA": "ɑ", "AE": "æ", "AH": "ʌ", "AO": "ɔ", "AW": "W", "AY": "I", "EH": "ɛ", "ER": "ɜɹ"},
    **{"EY": "A", "IH": "ɪ", "IY": "i", "OW": "O", "OY": "Y", "UH": "ʊ", "UW": "u"},
}
_REDUCED = {"AH": "ə", "ER": "əɹ"}
_CONSONANTS = {
    **{"B": "b", "CH": "ʧ", "D": "d", "DH": "ð", "F": "f", "G": "ɡ", "HH": "h", "JH": "ʤ"},
    **{"K": "k", "L": "l", "M": "m", "N": "n", "NG": "ŋ", "P": "p", "R": "ɹ", "S": "s"},
    **{"SH": "ʃ", "T": "t", "TH": "θ", "V": "v", "W": "w", "Y": "j", "Z": "z", "ZH": "ʒ"},
}
_STRESS = {"0": "", "1": "ˈ", "2": "ˌ"}
_FLAP = "T"


def arpabet_to_ipa(phones: Sequence[str]) -> str:
    """`("W", "AO1", "T", "ER0")` → `wˈɔTəɹ`, for one word.

    A `T` after a vowel or R and before an unstressed vowel is the American flap.

    Raises:
        KeyError: a phone outside of the inventory.
    """
    out: list[str] = []
    for index, phone in enumerate(phones):
        if is_vowel(phone):
            vowel, stress = phone[:-1], phone[-1]
            reduced = _REDUCED.get(vowel) if stress == "0" else None
            out.append(_STRESS[stress] + (reduced or _VOWELS[vowel]))
        elif phone == "T" and _is_flapped(phones, index):
            out.append(_FLAP)
        else:
            out.append(_CONSONANTS[phone])
    return "".join(out)


def _is_flapped(phones: Sequence[str], index: int) -> bool:
    if not 0 < index < len(phones) - 1:
        return False
    before, after = phones[index - 1], phones[index + 1]
    return (is_vowel(before) or before == "R") and is_vowel(after) and after[-1] == "0"


_TO_ARPABET = (
    {symbol: phone for phone, symbol in _CONSONANTS.items()}
    | {symbol: phone for phone, symbol in _VOWELS.items() if phone != "ER"}
    | {"T": "T", "ə": "AH", "ɜ": "ER", "ᵻ": "IH", "ᵊ": "AH", "a": "AA", "y": "IY", "ʀ": "R"}
)
_STRESSED = {"ˈ": "1", "ˌ": "2"}


def ipa_to_arpabet(symbols: Iterable[str]) -> tuple[str, ...]:
    """Inverse of `arpabet_to_ipa` but for the flap; symbols with no ARPABET sound are left out."""
    phones: list[str] = []
    stress = "0"
    previous = ""
    for symbol in symbols:
        phone = _TO_ARPABET.get(symbol, "")
        if symbol in _STRESSED:
            stress = _STRESSED[symbol]
        elif symbol == "ɹ" and previous == "ɜ":
            pass
        elif symbol == "ɹ" and previous == "ə":
            phones[-1] = "ER" + phones[-1][-1]
        elif phone and (phone in _VOWELS):
            phones.append(phone + stress)
            stress = "0"
        elif phone:
            phones.append(phone)
        previous = symbol
    return tuple(phones)
