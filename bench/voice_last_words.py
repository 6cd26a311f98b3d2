"""Whether the end of a text is ever lost: sentences of every length from one word to thirty.

A last word counts as heard if Whisper writes it, or if the checkpoint's own recogniser hears at
least half of its phones at the end of the speech: a small model's words may be unclear without
being gone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from antiphon.engine.voice.reference import SpeechTokenizer
from antiphon.engine.voice.resample import resample
from antiphon.training.data.phones import PUNCTUATION, base, pronounce
from antiphon.training.data.sentences import Sentence
from antiphon.training.data.sentences import sentences as grammar
from bench import voice_measures as measure
from bench.asr import normalised, transcribe
from bench.phone_listener import closest, heard_phones
from bench.report import Row
from bench.voice_server import WORDS_PER_SECOND, say

LONGEST = 30
SEED = 90_001
"""Not the corpus's."""
MARGIN = 5
"""Phones that may be heard behind or before the word."""


def of_every_length(count: int) -> list[str]:
    """`count` texts, their lengths going round from one word to thirty, none of them twice."""
    pools: dict[int, list[str]] = {}
    for sentence in itertools.islice(_sayable(), 6 * count + 600):
        pools.setdefault(len(sentence.split()), []).append(sentence)
    texts: list[str] = []
    for length in itertools.islice(itertools.cycle(range(1, LONGEST + 1)), count):
        texts.append(_with_words(length, pools, set(texts)))
    return texts


def _sayable() -> Iterator[str]:
    for sentence in grammar(SEED, 0.0):
        if pronounce(sentence) is not None:
            yield sentence.text


def _with_words(length: int, pools: dict[int, list[str]], used: set[str]) -> str:
    """A sentence of so many words; two joined, or the end of a longer one, where there is none."""
    for text in pools.get(length, ()):
        if text not in used:
            return text
    for first in sorted(pools, reverse=True):
        for one, two in itertools.product(pools[first], pools.get(length - first, ())):
            if f"{one} {two}" not in used:
                return f"{one} {two}"
    longer = (text for n, pool in sorted(pools.items()) if n > length for text in pool)
    ends = (" ".join(text.split()[-length:]) for text in longer)
    return next(end for end in ends if end not in used)


def measure_last_words(
    url: str, tokenizer: SpeechTokenizer, texts: Sequence[str], voices: Sequence[str]
) -> Row:
    """How many last words are written down, and how many are lost."""
    written = lost = 0
    for number, text in enumerate(texts):
        samples = say(
            url, text, voices[number % len(voices)], number, words_per_second=WORDS_PER_SECOND
        ).samples
        word = normalised(text)[-1]
        if word in normalised(transcribe(samples, measure.RATE_HZ))[-3:]:
            written += 1
            continue
        lost += not ends_with(text.split()[-1], samples, tokenizer)
    return {"texts": len(texts), "last word written by Whisper": written, "last word lost": lost}


def ends_with(word: str, samples: measure.Samples, tokenizer: SpeechTokenizer) -> bool:
    """Whether at least half of a word's phones are heard at the end of (samples,) at 24 kHz."""
    said = pronounce(Sentence((word.lower().rstrip(PUNCTUATION),)))
    assert said is not None
    wanted = [base(phone) for phone in said[0].phones]
    heard = heard_phones(tokenizer, resample(samples, measure.RATE_HZ, measure.MEASURE_HZ))
    return closest(wanted, heard[-len(wanted) - MARGIN :]) <= len(wanted) / 2
