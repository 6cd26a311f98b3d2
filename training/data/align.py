"""Where each phone of a known sentence lies in a recording, by the speech tokenizer's own ear.

Viterbi over the recogniser's log-probabilities: phones in order, each at least one token, silence
allowed at the ends and between words.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from antiphon.training.data.codes import SILENCE, Ids, Segments
from antiphon.training.data.phones import PHONES, Word, base

_TOKEN_FRAMES: Final = 3.2
"""12.5 ms frames of a 40 ms token."""


def align(log_probabilities: npt.NDArray[np.float32], spoken: Sequence[Word]) -> Segments | None:
    """Phones and silences in time; None if the recording is shorter than its phones.

    :param log_probabilities: (tokens, 40) natural log over the phones
    :returns: segments whose edges are in 12.5 ms frames
    """
    phone, owner, optional = _states(spoken)
    tokens, states = len(log_probabilities), len(phone)
    if tokens < sum(not skippable for skippable in optional):
        return None
    emitted = log_probabilities[:, phone]
    best = np.full((tokens, states), -np.inf)
    came = np.zeros((tokens, states), np.int64)
    best[0, 0] = emitted[0, 0]
    best[0, 1] = emitted[0, 1]
    for token in range(1, tokens):
        for state in range(states):
            sources = [state]
            if state >= 1:
                sources.append(state - 1)
            if state >= 2 and optional[state - 1]:
                sources.append(state - 2)
            source = max(sources, key=lambda s: best[token - 1, s])
            best[token, state] = best[token - 1, source] + emitted[token, state]
            came[token, state] = source
    last = states - 1 if best[-1, states - 1] >= best[-1, states - 2] else states - 2
    if not np.isfinite(best[-1, last]):
        return None
    path = [last]
    for token in range(tokens - 1, 0, -1):
        path.append(int(came[token, path[-1]]))
    return _segments(np.array(path[::-1]), np.array(phone), np.array(owner))


def _states(spoken: Sequence[Word]) -> tuple[list[int], list[int], list[bool]]:
    """Phone, owner and whether it may be skipped, with silence around every word."""
    phone, owner, optional = [SILENCE], [-1], [True]
    index = 0
    for word in spoken:
        for name in word.phones:
            phone.append(PHONES.index(base(name)))
            owner.append(index)
            optional.append(False)
            index += 1
        phone.append(SILENCE)
        owner.append(-1)
        optional.append(True)
    return phone, owner, optional


def _segments(path: Ids, phone: Ids, owner: Ids) -> Segments:
    starts = np.flatnonzero(np.diff(path, prepend=-1))
    edge = np.concatenate([starts, [len(path)]]) * _TOKEN_FRAMES
    states = path[starts]
    return Segments(phone[states], owner[states], edge.round().astype(np.int64))
