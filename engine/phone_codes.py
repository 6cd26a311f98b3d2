"""Speech codes that say what sounds: a phone, its pitch level, and whether it begins here.

`code = phone + 40 * (level + 3 * start)`, 240 codes in all, as the nano checkpoints have them.
`phone` counts through `PHONES`, the last of which is silence.
"""

from __future__ import annotations

from typing import Final

from antiphon.engine.text.arpabet import CONSONANTS, VOWELS

PHONES: Final = (*sorted(VOWELS + CONSONANTS), "SIL")
"""ARPABET without stress."""
SILENCE: Final = PHONES.index("SIL")
LEVELS: Final = 3
CODES: Final = len(PHONES) * LEVELS * 2


def phone_of(code: int) -> int:
    """Return the index in `PHONES` of what sounds."""
    return code % len(PHONES)


def begins(code: int) -> bool:
    """Whether it is the first code of its phone."""
    return code >= len(PHONES) * LEVELS


def phone_named(written: str) -> int:
    """Return the index of a phone of the dictionary, `HH` or, with its stress, `AH0`."""
    return PHONES.index(written.rstrip("012"))
