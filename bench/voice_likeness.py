"""Whom a voice sounds like: house voices and clones of virtual speakers, by Resemblyzer.

Every speaker reads two sentences of the teacher: the first is the prompt that is enrolled and
compared with, the second says how well the measure can do (the ceiling). A voice is right if its
speech is nearer to its own prompt than to that of a different speaker; how many are nearest of all
is told too, but the virtual speakers are one teacher's and some are near each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from antiphon.training.data.corpus import Utterance
from antiphon.training.data.make import CorpusPlan, cast
from antiphon.training.data.speakers import HOUSE, Warp
from antiphon.training.data.split import HELD_OUT_SPEAKERS
from bench import voice_measures as measure
from bench.report import Row
from bench.voice_links import teacher_speech
from bench.voice_sentences import SENTENCES
from bench.voice_server import enrol, say

TRAINED = ("virtual000", "virtual030", "virtual050", "virtual080")
HELD_OUT = HELD_OUT_SPEAKERS[:10]
PROMPTS = tuple(text for text in SENTENCES if 14 <= len(text.split()) <= 18)
"""About four seconds: long enough to be enrolled."""
SPOKEN = 3
"""Sentences that every voice reads."""


def speakers(stored: Sequence[str], clones: int) -> dict[str, Warp]:
    """The checkpoint's house voices, and `clones` virtual speakers, held-out ones first."""
    virtual = cast(CorpusPlan())
    house = {name: warp for name, warp in HOUSE.items() if name in stored}
    return house | {name: virtual[name] for name in (*HELD_OUT, *TRAINED)[:clones]}


def measure_likeness(url: str, stored: Sequence[str], clones: int) -> list[Row]:
    """Enrol the virtual speakers at a server and rank all voices; clones and ceiling too."""
    wanted = speakers(stored, clones)
    prompts = _read(wanted, PROMPTS, 20_000)
    again = _read(wanted, PROMPTS[::-1], 30_000)
    for name in wanted:
        if name not in HOUSE:
            enrol(url, name, prompts[name])
    made = {
        name: [say(url, text, name, n).samples for n, text in enumerate(PROMPTS[-SPOKEN:])]
        for name in wanted
    }
    known = {name: measure.voice_embedding([one.samples]) for name, one in prompts.items()}
    ceiling = {name: measure.voice_embedding([one.samples]) for name, one in again.items()}
    spoken = {name: measure.voice_embedding(pieces) for name, pieces in made.items()}
    return [_row("teacher", ceiling, known), _row("voices", spoken, known)]


def _read(voices: Mapping[str, Warp], texts: Sequence[str], seed: int) -> dict[str, Utterance]:
    turns = [texts[number % len(texts)] for number in range(len(voices))]
    return {item.speaker: item for item in teacher_speech(turns, voices, seed)}


def _row(name: str, made: measure.Embeddings, prompts: measure.Embeddings) -> Row:
    ranked = measure.right_voice_ranks(made, prompts)
    house = [voice for voice in ranked.right if voice in HOUSE]
    return {
        "speech": name,
        "voices": len(made),
        "nearer than to another": len(ranked.nearer),
        "right first": len(ranked.right),
        "of them house": len(house),
        "held out": len([voice for voice in ranked.right if voice in HELD_OUT]),
        "own prompt": ranked.own,
        "other prompts": ranked.others,
    }
