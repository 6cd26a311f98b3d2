"""Words that nobody has met, cut together from the dictionary's pronunciations.

The grammar's word lists are small. A speech LM that knows no others reads unknown words badly: one
half of one real word and one half of another have the phone sequences of the language without
being on any list. They are written as phones and never shown to anyone.
"""

import random
from functools import cache
from typing import Final

from antiphon.engine.text.lexicon import dictionary_pronunciations
from antiphon.training.data.sentences import VOWELS, Phones, Sentence

_SHORTEST, _LONGEST = 3, 10
_FUNCTION_WORDS: Final = (
    *("the", "a", "and", "of", "to", "in", "is", "it", "for", "that", "was", "on", "with", "as"),
    *("at", "be", "but", "by", "from", "he", "she", "we", "you", "i", "they", "his", "her", "my"),
    *("your", "our", "their", "can", "could", "would", "should", "have", "has", "had", "do", "are"),
    *("if", "or", "than", "will", "not", "so", "no", "there", "when", "who", "what", "how"),
)


@cache
def _words() -> tuple[Phones, ...]:
    """Pronunciations of middling length, in the dictionary's order."""
    entries = dictionary_pronunciations()
    return tuple(p for p in entries if _SHORTEST <= len(p) <= _LONGEST and _vowels(p))


def _vowels(phones: Phones) -> list[int]:
    return [i for i, phone in enumerate(phones) if phone.rstrip("012") in VOWELS]


def blend(rng: random.Random) -> Phones:
    """The head of one word up to a vowel, then what follows a vowel of another; one main stress."""
    head, tail = rng.choice(_words()), rng.choice(_words())
    joined = [*head[: rng.choice(_vowels(head)) + 1], *tail[rng.choice(_vowels(tail)) + 1 :]]
    vowels = _vowels(tuple(joined))
    main = next((i for i in vowels if joined[i].endswith("1")), vowels[0])
    for i in vowels:
        if i == main:
            joined[i] = joined[i][:-1] + "1"
        elif joined[i].endswith("1"):
            joined[i] = joined[i][:-1] + "2"
    return tuple(joined)


def blended_sentence(rng: random.Random) -> Sentence:
    """One to about twenty words, half of them function words, with commas here and there."""
    words: list[str | Phones] = []
    for index in range(rng.choice((1, 2, 3, 4, 5, 6, 7, 8, 10, 12))):
        if index and rng.random() < 0.55:
            words.append(rng.choice(_FUNCTION_WORDS))
        words.append(blend(rng))
        if index and rng.random() < 0.08:
            words.append(",")
    return Sentence((*words, rng.choice((".", ".", ".", "?", "!"))))
