"""Features of the corpus, computed once by the engine's own code and kept beside the shards."""

import os
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from antiphon.engine.checkpoint.config import MelConfig
from antiphon.engine.voice.features import log_mel
from antiphon.training.data.corpus import Corpus
from antiphon.training.data.hibari import Array

MEL: Final = MelConfig(
    n_fft=1920,
    num_mels=80,
    sampling_rate=24000,
    hop_size=480,
    win_size=1920,
    fmin=0.0,
    fmax=None,
    center=False,
)


class Mels:
    """Log-mels of a corpus: (frames, 80) float32 views of one float16 file."""

    def __init__(self, corpus: Corpus, cache: Path) -> None:
        total = 2 * int(sum(corpus.tokens(i) for i in range(len(corpus))))
        self.corpus = corpus
        if not cache.exists():
            _write(corpus, cache, total)
        self._frames: npt.NDArray[np.float16] = np.load(cache, mmap_mode="r")
        assert len(self._frames) == total, "features belong to another corpus"

    def get(self, index: int, first: int = 0, count: int | None = None) -> Array:
        """Frames of tokens `first` to `first + count` of an utterance."""
        begin = int(self.corpus.starts[index]) + first
        length = self.corpus.tokens(index) - first if count is None else count
        return np.asarray(self._frames[2 * begin : 2 * (begin + length)], np.float32)


def _write(corpus: Corpus, cache: Path, total: int) -> None:
    frames = np.empty((total, MEL.num_mels), np.float16)
    for index in range(len(corpus)):
        begin = 2 * int(corpus.starts[index])
        mel = log_mel(corpus.samples(index), MEL).numpy()
        frames[begin : begin + len(mel)] = mel
    temporary = cache.with_name(f"{cache.stem}.{os.getpid()}.part.npy")
    np.save(temporary, frames)
    os.replace(temporary, cache)
