"""Sentences for training: a small grammar over our own word lists, and invented words.

Invented words give every phone many neighbours without any dictionary; they are written as phones
and never shown to anyone.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from antiphon.training.data import vocabulary as v

Phones = tuple[str, ...]


@dataclass(frozen=True)
class Sentence:
    """Words in order: spellings, or tuples of ARPABET phones for invented words."""

    words: tuple[str | Phones, ...]
    """Spellings carry their closing punctuation: `("hello,", "world.")`."""

    @property
    def text(self) -> str:
        """The sentence as a reader sees it; invented words as bracketed phones."""
        parts = [w if isinstance(w, str) else "".join(f"[{p}]" for p in w) for w in self.words]
        return " ".join(parts)


ONSETS: Final = (
    "",
    *v.words("B CH D F G HH JH K L M N P R S SH T TH V W Y Z"),
    *v.clusters(
        "B L,B R,D R,F L,F R,G L,G R,K L,K R,K W,P L,P R,S K,S L,S M,S N,S P,S T,S W,T R,T W,"
        "S T R,S P R,S K R,TH R,SH R,DH"
    ),
)
VOWELS: Final = v.words("AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW")
CODAS: Final = (
    *("", "", "", ""),
    *v.words("B CH D F G JH K L M N NG P R S SH T TH V Z ZH"),
    *v.clusters(
        "L D,L T,M P,N D,N T,NG K,N S,R D,R K,R N,R T,S T,K S,K T,P T,T S,N Z,L Z,D Z,F T,S K"
    ),
)


def invented_word(rng: random.Random) -> Phones:
    """One to three syllables, the first of them stressed."""
    phones: list[str] = []
    for syllable in range(rng.choice((1, 1, 2, 2, 3))):
        onset, coda = rng.choice(ONSETS), rng.choice(CODAS)
        vowel = rng.choice(VOWELS)
        stress = "1" if syllable == 0 else rng.choice("002")
        if stress == "0" and rng.random() < 0.5:
            vowel = rng.choice(("AH", "IH", "ER"))
        phones += [*onset.split(), vowel + stress, *coda.split()]
    return tuple(phones)


def number(rng: random.Random) -> str:
    """A spelled number below ten thousand."""
    small = rng.choice(v.UNITS)
    tens = rng.choice(v.TENS)
    return rng.choice(
        (
            small,
            tens,
            f"{tens} {rng.choice(v.UNITS[:9])}",
            f"{rng.choice(v.UNITS[:9])} hundred {tens}",
            f"{rng.choice(v.UNITS[:9])} thousand {rng.choice(v.UNITS[:9])} hundred",
        )
    )


def _article(rng: random.Random, phrase: str) -> str:
    if rng.random() < 0.6:
        return f"the {phrase}"
    return f"an {phrase}" if phrase[0] in "aeio" else f"a {phrase}"


def noun(rng: random.Random) -> str:
    """A noun phrase with its article."""
    kind = rng.choice((v.THINGS, v.THINGS, v.PEOPLE, v.ANIMALS))
    head = rng.choice(kind)
    if rng.random() < 0.45:
        head = f"{rng.choice(v.ADJECTIVES)} {head}"
    if rng.random() < 0.15:
        return f"{rng.choice(('my', 'your', 'our', 'their', 'his', 'her'))} {head}"
    return _article(rng, head)


def _subject(rng: random.Random) -> str:
    if rng.random() < 0.35:
        return rng.choice((*v.NAMES, "she", "he", "they", "we", "i", "you"))
    return _article(rng, rng.choice((*v.PEOPLE, *v.ANIMALS)))


def _place(rng: random.Random) -> str:
    return f"{rng.choice(v.PREPOSITIONS)} {_article(rng, rng.choice(v.THINGS))}"


def _time(rng: random.Random) -> str:
    hour = rng.choice(v.UNITS[:12])
    return rng.choice(
        (
            f"at {hour} o'clock",
            f"at {hour} {rng.choice(('fifteen', 'thirty', 'forty five', 'twenty'))}",
            f"on {rng.choice(v.DAYS)}",
            f"on {rng.choice(v.DAYS)} {rng.choice(('morning', 'afternoon', 'evening'))}",
            f"on {rng.choice(v.MONTHS)} {rng.choice(v.ORDINALS)}",
            f"in {rng.choice(v.MONTHS)}",
        )
    )


def _story(r: random.Random) -> str:
    return f"{_subject(r)} {r.choice(v.PAST)} {noun(r)} {_place(r)}."


def _motion(r: random.Random) -> str:
    return f"{_subject(r)} {r.choice(v.MOTIONS)} {r.choice(v.ADVERBS)} {_place(r)}."


def _question(r: random.Random) -> str:
    return r.choice(
        (
            f"did {_subject(r)} {r.choice(v.VERBS)} {noun(r)}?",
            f"where is {noun(r)}?",
            f"why would you {r.choice(v.VERBS)} {noun(r)}?",
            f"can you {r.choice(v.VERBS)} {noun(r)} {_time(r)}?",
            f"how many {r.choice(v.FOODS)} do we need for {r.choice(v.NAMES)}?",
            f"what time does {noun(r)} leave for {r.choice(v.CITIES)}?",
            f"which {r.choice(v.THINGS)} do you prefer, {noun(r)} or {noun(r)}?",
        )
    )


def _service(r: random.Random) -> str:
    return r.choice(
        (
            f"thank you for calling, my name is {r.choice(v.NAMES)}.",
            f"your appointment is {_time(r)}.",
            f"i have booked a table for {r.choice(v.UNITS[:12])} {_time(r)}.",
            f"the total is {number(r)} dollars and {number(r).split()[0]} cents.",
            f"please hold while i {r.choice(v.VERBS)} your {r.choice(v.THINGS)}.",
            f"sorry, i could not {r.choice(v.VERBS)} {noun(r)}.",
            f"your {r.choice(v.THINGS)} will arrive in {r.choice(v.CITIES)} {_time(r)}.",
            f"is there anything else i can {r.choice(v.VERBS)} for you, {r.choice(v.NAMES)}?",
            f"sure, {_subject(r)} can {r.choice(v.VERBS)} it right now.",
            f"your order number is {' '.join(r.choice(v.UNITS[:9]) for _ in range(5))}.",
            f"the flight to {r.choice(v.CITIES)} departs {_time(r)} from gate {number(r)}.",
            f"would you like to {r.choice(v.VERBS)} {noun(r)}, or {r.choice(v.VERBS)} it later?",
        )
    )


def _quality(r: random.Random) -> str:
    return f"{r.choice(v.ADVERBS)} {r.choice(v.ADJECTIVES)}"


def _thought(r: random.Random) -> str:
    return r.choice(
        (
            f"{r.choice(v.ABSTRACT)} is more {r.choice(v.ADJECTIVES)} than {r.choice(v.ABSTRACT)}.",
            f"every {r.choice(v.ABSTRACT)} needs {' and '.join(r.choices(v.ABSTRACT, k=2))}.",
            f"without {r.choice(v.ABSTRACT)}, there is no {r.choice(v.ABSTRACT)}.",
            f"{_subject(r)} said that {noun(r)} was {_quality(r)}.",
            f"if you {r.choice(v.VERBS)} {noun(r)}, {_subject(r)} will {r.choice(v.VERBS)} it.",
            f"it is {_quality(r)} to {r.choice(v.VERBS)} {noun(r)}.",
            f"the {r.choice(v.ADJECTIVES)} {r.choice(v.ABSTRACT)} of {r.choice(v.CITIES)} "
            f"was {r.choice(v.PAST)} {_time(r)}.",
        )
    )


def _list(r: random.Random) -> str:
    foods = r.sample(v.FOODS, 4)
    return f"we need {foods[0]}, {foods[1]}, {foods[2]}, and {foods[3]}."


def _command(r: random.Random) -> str:
    opening = r.choice(("please", "now", "then", "first,"))
    return f"{opening} {r.choice(v.VERBS)} {noun(r)} {_place(r)}!"


def _short(r: random.Random) -> str:
    return r.choice(
        (
            "yes.", "no.", "hello!", "thank you.", "good morning.", "good evening.", "of course.",
            "goodbye.", "i see.", "please wait.", "never mind.", "okay.", "welcome back!", "maybe.",
            f"{r.choice(v.NAMES)}?", f"{number(r)}.", f"{r.choice(v.ADVERBS)}.",
            f"{r.choice(v.ADJECTIVES)} {r.choice(v.THINGS)}.", f"{r.choice(v.DAYS)}.",
            f"hello, {r.choice(v.NAMES)}!", f"thanks, {r.choice(v.NAMES)}.",
        )
    )  # fmt: skip


_JOINERS: Final = ("and then", "but", "because", "so", "while", "although", "before", "after")


def _long(r: random.Random) -> str:
    return f"{_story(r)[:-1]}, {r.choice(_JOINERS)} {r.choice((_story, _motion))(r)}"


def _longest(r: random.Random) -> str:
    """Up to about thirty words, so that long turns are in distribution."""
    return f"{_long(r)[:-1]}, {r.choice(_JOINERS)} {r.choice((_story, _motion))(r)}"


_KINDS: Final[tuple[tuple[Callable[[random.Random], str], float], ...]] = (
    (_story, 2.0),
    (_motion, 1.5),
    (_question, 2.0),
    (_service, 2.5),
    (_thought, 2.0),
    (_list, 0.5),
    (_command, 1.0),
    (_short, 0.8),
    (_long, 1.2),
    (_longest, 0.4),
)


def _invented(rng: random.Random) -> tuple[str | Phones, ...]:
    """A sentence whose content words are invented: neighbours the word lists do not offer."""
    count = rng.randint(2, 7)
    words: list[str | Phones] = []
    for index in range(count):
        if index and rng.random() < 0.35:
            words.append(rng.choice(("the", "and", "of", "to", "in", "a", "with", "for", "is")))
        words.append(invented_word(rng))
    return (*words, rng.choice((".", ".", ".", "?", "!")))


def sentences(seed: int, invented_share: float) -> Iterator[Sentence]:
    """Endless distinct sentences, the same for the same seed."""
    rng = random.Random(seed)
    kinds = [kind for kind, _ in _KINDS]
    weights = [weight for _, weight in _KINDS]
    seen: set[tuple[str | Phones, ...]] = set()
    while True:
        if rng.random() < invented_share:
            words = _invented(rng)
        else:
            words = tuple(rng.choices(kinds, weights)[0](rng).split())
        if words in seen and len(words) > 3:
            continue
        seen.add(words)
        yield Sentence(words)
