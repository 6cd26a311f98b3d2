"""A nano checkpoint's own speech tokenizer as a listener: it is a recogniser of phones."""

from __future__ import annotations

from collections.abc import Sequence

from antiphon.engine.phone_codes import PHONES, SILENCE, begins, phone_of
from antiphon.engine.voice.reference import SpeechTokenizer
from bench.voice_measures import Samples


def heard_phones(tokenizer: SpeechTokenizer, samples: Samples) -> list[str]:
    """Phones that begin in (samples,) at 16 kHz, silences left out."""
    phones = [phone_of(code) for code in tokenizer.tokens(samples) if begins(code)]
    return [PHONES[phone] for phone in phones if phone != SILENCE]


def closest(wanted: Sequence[str], heard: Sequence[str]) -> int:
    """Edits between `wanted` and the stretch of `heard` that is nearest to it."""
    row = [0] * (len(heard) + 1)
    for i, phone in enumerate(wanted, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(heard, 1):
            diagonal, row[j] = (
                row[j],
                min(row[j] + 1, row[j - 1] + 1, diagonal + (phone != other)),
            )
    return min(row)
