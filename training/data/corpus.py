"""The corpus on disk: shards of a few hundred utterances, each written whole or not at all."""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from antiphon.training.data.codes import Ids
from antiphon.training.data.hibari import Array


@dataclass(frozen=True)
class Utterance:
    """One spoken sentence.

    `samples`: (960 * tokens,) float32 at 24 kHz, or none where only codes are wanted; `f0`:
    (2 * tokens,) Hz; `codes`, `owner`: (tokens,) speech code and index of its phone in the sentence
    (-1: silence); `text`: what the LM reads; `spoken`: the words for people; `warp`: the speaker's
    known parameters.
    """

    speaker: str
    text: str
    spoken: str
    warp: tuple[float, ...]
    phase_locked: bool
    samples: Array
    f0: Array
    codes: Ids
    owner: Ids


def write_shard(path: Path, utterances: Sequence[Utterance]) -> None:
    """Write one shard; the name appears only when the file is complete."""
    rows = []
    for item in utterances:
        row = asdict(item)
        for name in ("samples", "f0", "codes", "owner"):
            del row[name]
        rows.append(row | {"tokens": len(item.codes)})
    pcm = np.concatenate([u.samples for u in utterances])
    temporary = path.with_suffix(".part")
    with temporary.open("wb") as file:
        np.savez(
            file,
            samples=(np.clip(pcm, -1, 1) * 32767).astype(np.int16),
            f0=np.concatenate([u.f0 for u in utterances]),
            codes=np.concatenate([u.codes for u in utterances]).astype(np.uint8),
            owner=np.concatenate([u.owner for u in utterances]).astype(np.int16),
            rows=np.frombuffer(json.dumps(rows).encode(), np.uint8),
        )
    os.replace(temporary, path)


class Corpus:
    """All shards of a folder, in memory, with float32 views made on demand."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.rows: list[dict[str, Any]] = []
        samples, f0, codes, owner = [], [], [], []
        for path in sorted(paths):
            with np.load(path) as shard:
                self.rows += json.loads(shard["rows"].tobytes())
                samples.append(shard["samples"])
                f0.append(shard["f0"])
                codes.append(shard["codes"])
                owner.append(shard["owner"])
        self._samples: npt.NDArray[np.int16] = np.concatenate(samples)
        self._f0: Array = np.concatenate(f0)
        self._codes = np.concatenate(codes)
        self._owner = np.concatenate(owner)
        ends = np.cumsum([row["tokens"] for row in self.rows])
        self.starts: Ids = np.concatenate([[0], ends])[:-1].astype(np.int64)

    def __len__(self) -> int:
        return len(self.rows)

    def tokens(self, index: int) -> int:
        """Number of speech tokens of an utterance."""
        return int(self.rows[index]["tokens"])

    def samples(self, index: int, first: int = 0, count: int | None = None) -> Array:
        """Samples of tokens `first` to `first + count`."""
        begin = int(self.starts[index]) + first
        length = self.tokens(index) - first if count is None else count
        part = self._samples[960 * begin : 960 * (begin + length)]
        return part.astype(np.float32) / 32767.0

    def f0(self, index: int, first: int = 0, count: int | None = None) -> Array:
        """F0 in Hz of the mel frames of those tokens."""
        begin = int(self.starts[index]) + first
        length = self.tokens(index) - first if count is None else count
        return self._f0[2 * begin : 2 * (begin + length)]

    def codes(self, index: int) -> Ids:
        """Speech codes of an utterance."""
        begin = int(self.starts[index])
        return self._codes[begin : begin + self.tokens(index)].astype(np.int64)

    def owner(self, index: int) -> Ids:
        """Index of each code's phone in the sentence, -1 for silence."""
        begin = int(self.starts[index])
        return self._owner[begin : begin + self.tokens(index)].astype(np.int64)
