"""Who is held out from what."""

from dataclasses import dataclass

from antiphon.training.data.corpus import Corpus


@dataclass(frozen=True)
class Split:
    """Utterance indices. Held-out speakers are virtual ones; house voices are always trained."""

    train: tuple[int, ...]
    validation: tuple[int, ...]
    """Held-out sentences of trained speakers."""
    unseen: tuple[int, ...]
    """Sentences of held-out speakers."""


HELD_OUT_SPEAKERS = tuple(f"virtual{i:03d}" for i in range(4, 96, 9))
"""Eleven of the virtual speakers, spread over the draw."""


def split(corpus: Corpus, validation_every: int = 50) -> Split:
    """Every 50th utterance is held out from training, and all of the held-out speakers."""
    unseen = [i for i, row in enumerate(corpus.rows) if row["speaker"] in HELD_OUT_SPEAKERS]
    rest = [i for i, row in enumerate(corpus.rows) if row["speaker"] not in HELD_OUT_SPEAKERS]
    validation = rest[::validation_every]
    train = [i for position, i in enumerate(rest) if position % validation_every]
    return Split(tuple(train), tuple(validation), tuple(unseen))
