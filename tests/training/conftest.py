"""A tiny corpus by the real teacher, made once for all tests of this folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from antiphon.training.data.corpus import Corpus, Utterance, write_shard
from antiphon.training.data.features import Mels
from antiphon.training.data.hibari import Hibari
from antiphon.training.data.make import CorpusPlan, cast, utter
from antiphon.training.data.sentences import Sentence
from antiphon.training.data.split import HELD_OUT_SPEAKERS, Split

LONG = (
    "the careful gardener carried a heavy basket of oranges across the narrow wooden bridge, "
    "and then she slowly returned."
)
SHORT = ("good morning, anna.", "where is the river?", "thank you!")


@pytest.fixture(scope="session")
def utterances() -> list[Utterance]:
    plan = CorpusPlan()
    teacher = Hibari()
    speakers = cast(plan)
    names = [*list(speakers)[:6], *HELD_OUT_SPEAKERS[:2]]
    made = []
    for number, name in enumerate(names):
        for text in (LONG, SHORT[number % len(SHORT)]):
            sentence = Sentence(tuple(text.split()))
            item = utter(teacher, name, speakers[name], sentence, plan, seed=number)
            assert item is not None
            made.append(item)
    return made


@pytest.fixture(scope="session")
def corpus_folder(utterances: list[Utterance], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "corpus"
    folder.mkdir()
    write_shard(folder / "hibari-000.npz", utterances)
    return folder


@pytest.fixture(scope="session")
def corpus(corpus_folder: Path) -> Corpus:
    return Corpus(corpus_folder.glob("*.npz"))


@pytest.fixture(scope="session")
def mels(corpus: Corpus, corpus_folder: Path) -> Mels:
    return Mels(corpus, corpus_folder / "mel.npy")


@pytest.fixture(scope="session")
def parts(corpus: Corpus) -> Split:
    unseen = [i for i, row in enumerate(corpus.rows) if row["speaker"] in HELD_OUT_SPEAKERS]
    rest = [i for i in range(len(corpus)) if i not in unseen]
    return Split(tuple(rest), tuple(rest[-3:]), tuple(unseen))


@pytest.fixture(scope="session")
def embeddings(corpus: Corpus) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((len(corpus), 192)).astype(np.float32)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
