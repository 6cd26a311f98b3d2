"""Words to ARPABET, and the text the speech LM reads: ` [HH][AH0][L][OW1], [W][ER1][L][D].`"""

from dataclasses import dataclass
from typing import Final

from antiphon.engine import phone_codes
from antiphon.engine.text.lexicon import STRONG_THE
from antiphon.engine.text.lexicon import pronounce as word_groups
from antiphon.training.data.sentences import VOWELS, Sentence

PHONES: Final = phone_codes.PHONES
PUNCTUATION: Final = ".,!?;:"


@dataclass(frozen=True)
class Word:
    """One word's phones (with stress digits) and the punctuation that closes it, if any."""

    phones: tuple[str, ...]
    punctuation: str


def base(phone: str) -> str:
    """A phone without its stress digit."""
    return phone.rstrip("012")


def pronounce(sentence: Sentence) -> tuple[Word, ...] | None:
    """Phones of every word by the engine's lexicon; None if one is not said as a single word."""
    spoken: list[Word] = []
    for item in sentence.words:
        if isinstance(item, tuple):
            spoken.append(Word(item, ""))
            continue
        spelling = item.rstrip(PUNCTUATION)
        mark = item[len(spelling) :][:1]
        if not spelling:
            spoken[-1] = Word(spoken[-1].phones, mark)
            continue
        groups = word_groups(spelling)
        if len(groups) != 1:
            return None
        spoken.append(Word(groups[0], mark))
    for index in range(len(spoken) - 1):
        follows_vowel = base(spoken[index + 1].phones[0]) in VOWELS
        if spoken[index] == Word(("DH", "AH0"), "") and follows_vowel:
            spoken[index] = Word(STRONG_THE, "")
    return tuple(spoken)


def lm_text(spoken: tuple[Word, ...]) -> str:
    """The speech LM's text: one space before every word, one bracket a phone."""
    return "".join(
        " " + "".join(f"[{phone}]" for phone in word.phones) + word.punctuation for word in spoken
    )
