"""Makes the corpus: who says what, shard by shard, the same for the same recipe."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from antiphon.training.data.codes import encode, segments, token_edges
from antiphon.training.data.corpus import Utterance, write_shard
from antiphon.training.data.hibari import Hibari, spell
from antiphon.training.data.phones import lm_text, pronounce
from antiphon.training.data.sentences import Sentence, sentences
from antiphon.training.data.speakers import HOUSE, Warp, draw_warp, speak


@dataclass(frozen=True)
class CorpusPlan:
    """Size and shares of the corpus."""

    utterances: int = 6400
    house_share: float = 0.45
    """Share spoken by the six house voices: what most listeners will hear."""
    virtual_speakers: int = 96
    invented_share: float = 0.25
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
    for index, sentence in enumerate(itertools.islice(texts, plan.utterances)):
        if rng.random() < plan.house_share:
            yield house[index % len(house)], sentence
        else:
            yield virtual[int(rng.integers(len(virtual)))], sentence


def utter(
    teacher: Hibari, name: str, warp: Warp, sentence: Sentence, plan: CorpusPlan, seed: int
) -> Utterance | None:
    """One sentence in one voice; None if it cannot be pronounced or is too long to train on."""
    words = pronounce(sentence)
    if words is None:
        return None
    symbols = spell(words)
    envelopes = teacher.envelopes(symbols.text, warp.speed)
    parts, begin = segments(
        words, symbols, envelopes.durations, envelopes.quiet(), plan.lead_frames, plan.tail_frames
    )
    end = begin + int(parts.edge[-1])
    samples, f0 = speak(envelopes, warp, begin, end, np.random.default_rng(seed))
    tokens = len(f0) // 2
    edges = token_edges(parts.edge, tokens)
    if edges is None or tokens > plan.max_tokens:
        return None
    codes, owner = encode(parts, edges, f0)
    return Utterance(
        speaker=name,
        text=lm_text(words),
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
