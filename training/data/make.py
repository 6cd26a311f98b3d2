"""Makes a corpus: who says what, shard by shard, the same for the same recipe."""

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from antiphon.training.data.blends import blended_sentence
from antiphon.training.data.codes import Segments, encode, segments, token_edges
from antiphon.training.data.corpus import Utterance, write_shard
from antiphon.training.data.hibari import Envelopes, Hibari, spell
from antiphon.training.data.phones import Word, lm_text, pronounce
from antiphon.training.data.sentences import Sentence, sentences
from antiphon.training.data.speakers import HOUSE, Warp, draw_warp, speak, spoken_f0


@dataclass(frozen=True)
class CorpusPlan:
    """Size and shares of the corpus."""

    utterances: int = 6400
    house_share: float = 0.45
    """Share spoken by the six house voices: what most listeners will hear."""
    virtual_speakers: int = 96
    invented_share: float = 0.25
    blended_share: float = 0.0
    """Share of sentences with words cut together from the dictionary's."""
    sound: bool = True
    """Whether samples are made; the speech LM needs codes only."""
    shard_size: int = 200
    seed: int = 7
    max_tokens: int = 240
    lead_frames: int = 5
    tail_frames: int = 11


def cast(plan: CorpusPlan) -> dict[str, Warp]:
    """All speakers by name: the house voices, then the virtual ones."""
    rng = np.random.default_rng(plan.seed)
    virtual = {f"virtual{i:03d}": draw_warp(rng) for i in range(plan.virtual_speakers)}
    return {**HOUSE, **virtual}


def schedule(plan: CorpusPlan) -> Iterator[tuple[str, Sentence]]:
    """Speaker and sentence of every utterance, in order."""
    rng = np.random.default_rng(plan.seed + 1)
    house = list(HOUSE)
    virtual = [name for name in cast(plan) if name not in HOUSE]
    texts = sentences(plan.seed, plan.invented_share)
    blends = random.Random(plan.seed + 2)
    for index, plain in enumerate(itertools.islice(texts, plan.utterances)):
        sentence = blended_sentence(blends) if blends.random() < plan.blended_share else plain
        if rng.random() < plan.house_share:
            yield house[index % len(house)], sentence
        else:
            yield virtual[int(rng.integers(len(virtual)))], sentence


@dataclass(frozen=True)
class _Laid:
    """A sentence as the teacher times it, before any sound is made."""

    words: tuple[Word, ...]
    envelopes: Envelopes
    parts: Segments
    begin: int

    @property
    def end(self) -> int:
        return self.begin + int(self.parts.edge[-1])


def _lay(teacher: Hibari, warp: Warp, sentence: Sentence, plan: CorpusPlan) -> _Laid | None:
    words = pronounce(sentence)
    if words is None:
        return None
    symbols = spell(words)
    envelopes = teacher.envelopes(symbols.text, warp.speed)
    parts, begin = segments(
        words, symbols, envelopes.durations, envelopes.quiet(), plan.lead_frames, plan.tail_frames
    )
    return _Laid(words, envelopes, parts, begin)


def utter(
    teacher: Hibari, name: str, warp: Warp, sentence: Sentence, plan: CorpusPlan, seed: int
) -> Utterance | None:
    """One sentence in one voice; None if it cannot be pronounced or is too long to train on.

    Without `plan.sound` there are codes and F0 but no samples, at half the cost.
    """
    laid = _lay(teacher, warp, sentence, plan)
    if laid is None:
        return None
    if plan.sound:
        rng = np.random.default_rng(seed)
        samples, f0 = speak(laid.envelopes, warp, laid.begin, laid.end, rng)
    else:
        samples = np.zeros(0, np.float32)
        f0 = spoken_f0(laid.envelopes, warp, laid.begin, laid.end)
    tokens = len(f0) // 2
    edges = token_edges(laid.parts.edge, tokens)
    if edges is None or tokens > plan.max_tokens:
        return None
    codes, owner = encode(laid.parts, edges, f0)
    return Utterance(
        speaker=name,
        text=lm_text(laid.words),
        spoken=sentence.text,
        warp=warp.vector(),
        phase_locked=True,
        samples=samples,
        f0=f0,
        codes=codes,
        owner=owner,
    )


def make_corpus(folder: Path, plan: CorpusPlan, part: int = 0, parts: int = 1) -> None:
    """Write the shards of this part that are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    speakers = cast(plan)
    teacher = Hibari()
    rows = list(schedule(plan))
    for number, begin in enumerate(range(0, len(rows), plan.shard_size)):
        path = folder / f"hibari-{number:03d}.npz"
        if number % parts != part or path.exists():
            continue
        made = [
            utter(teacher, name, speakers[name], sentence, plan, begin + offset)
            for offset, (name, sentence) in enumerate(rows[begin : begin + plan.shard_size])
        ]
        write_shard(path, [item for item in made if item is not None])
