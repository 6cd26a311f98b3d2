"""Speech codes: phone, pitch level and a start flag in one number, 25 of them a second.

`code = phone + 40 * (level + 3 * start)`. A vocabulary this small is easy to predict, readable, and
carries exact word times.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from antiphon.engine import phone_codes
from antiphon.training.data.hibari import Array, Symbols
from antiphon.training.data.phones import PHONES, Word, base

CODES: Final = phone_codes.CODES
SILENCE: Final = phone_codes.SILENCE
LEVEL_STEP: Final = 0.15
"""Natural-log distance from the utterance's mean F0 where the low and the high level begin."""
_PAUSE_FRAMES: Final = 6
"""Punctuation shorter than this (75 ms) is no pause; its time goes to the phone before it."""

AUDIO_LEAD: Final = 4
"""Frames by which the teacher's sound comes before its durations (measured: 3.5; sibilant energy
against labels over 120 sentences peaks there). Without it every label is one token late."""

Ids = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Segments:
    """Phones in time: `phone[i]` runs from `edge[i]` to `edge[i + 1]` (12.5 ms frames).

    `text[i]` is the index of the phone in the sentence, -1 for silence.
    """

    phone: Ids
    text: Ids
    edge: Ids


def segments(
    spoken: tuple[Word, ...], symbols: Symbols, durations: Ids, quiet: Flags, lead: int, tail: int
) -> tuple[Segments, int]:
    """Phone segments from the teacher's durations, with silence at the ends cut.

    :param durations: frames per symbol, with one pad before and one after
    :param quiet: (frames,) where the teacher's envelopes hold no audible energy
    :param lead, tail: frames of silence to keep at the start and at the end
    :returns: segments relative to the cut, and the envelope frame where the cut begins
    """
    names = [PHONES.index(base(p)) for word in spoken for p in word.phones]
    runs = _runs(symbols, durations)
    text = np.array([-1, *(owner for owner, _ in runs), -1])
    lengths = [int(durations[0]), *(length for _, length in runs), int(durations[-1])]
    edge = np.concatenate([[0], np.cumsum(lengths)]) - AUDIO_LEAD
    edge[0] = 0
    for index in np.flatnonzero(text[1:] < 0) + 1:
        first, last = edge[index - 1] + 1, edge[index]
        while last > first and quiet[last - 1]:
            last -= 1
        edge[index] = last
    if text[-2] < 0:
        text, edge = text[:-1], np.delete(edge, -2)
    begin = max(0, int(edge[1]) - lead)
    edge = edge - begin
    edge[0], edge[-1] = 0, min(edge[-1], edge[-2] + tail)
    phone = np.array([names[owner] if owner >= 0 else SILENCE for owner in text])
    return Segments(phone, text, edge), begin


def _runs(symbols: Symbols, durations: Ids) -> list[tuple[int, int]]:
    """(phone index or -1, frames) in order; spaces and short punctuation go to the phone before."""
    runs: list[tuple[int, int]] = []
    pause, marked = 0, False
    for symbol, owner, frames in zip(symbols.text, symbols.owner, durations[1:-1], strict=True):
        if owner < 0:
            pause, marked = pause + int(frames), marked or symbol != " "
            continue
        if pause:
            _close_pause(runs, pause, marked)
            pause, marked = 0, False
        if runs and runs[-1][0] == owner:
            runs[-1] = (owner, runs[-1][1] + int(frames))
        else:
            runs.append((owner, int(frames)))
    if pause:
        _close_pause(runs, pause, marked)
    return runs


def _close_pause(runs: list[tuple[int, int]], frames: int, marked: bool) -> None:
    if marked and frames >= _PAUSE_FRAMES:
        runs.append((-1, frames))
    else:
        runs[-1] = (runs[-1][0], runs[-1][1] + frames)


def token_edges(edge: Ids, tokens: int) -> Ids | None:
    """Segment borders on the 40 ms token grid, every segment at least one token long.

    The borders nearest to the true ones in the least-squares sense: with unit minimum length the
    problem is isotonic regression of `border - index`. None if there are more segments than tokens.

    :param edge: (segments + 1,) in 12.5 ms frames
    :returns: (segments + 1,) in tokens
    """
    count = len(edge) - 1
    if count > tokens:
        return None
    wanted = edge[1:-1].astype(np.float64) * (12.5 / 40.0) - np.arange(1, count)
    fitted = np.clip(_isotonic(wanted), 0, tokens - count)
    inner = np.floor(fitted + 0.5).astype(np.int64) + np.arange(1, count)
    return np.concatenate([[0], inner, [tokens]]).astype(np.int64)


def _isotonic(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Pool adjacent violators: the nondecreasing sequence nearest to `values`."""
    means: list[float] = []
    counts: list[int] = []
    for value in values:
        means.append(float(value))
        counts.append(1)
        while len(means) > 1 and means[-2] > means[-1]:
            total = counts[-2] + counts[-1]
            means[-2] = (means[-2] * counts[-2] + means[-1] * counts[-1]) / total
            counts[-2] = total
            del means[-1], counts[-1]
    return np.repeat(np.array(means), counts)


def encode(parts: Segments, edges: Ids, f0: Array) -> tuple[Ids, Ids]:
    """Speech codes and, per code, the index of the phone it belongs to (-1 for silence).

    :param edges: (segments + 1,) in tokens
    :param f0: (2 * tokens,) Hz, 0 where unvoiced
    """
    lengths = np.diff(edges)
    phone = np.repeat(parts.phone, lengths)
    start = np.zeros(len(phone), np.int64)
    start[edges[:-1]] = 1
    code = phone + 40 * (pitch_levels(f0, phone) + 3 * start)
    return code.astype(np.int64), np.repeat(parts.text, lengths).astype(np.int64)


def pitch_levels(f0: Array, phone: Ids) -> Ids:
    """0, 1, 2 for low, middle, high F0 against the utterance's mean; 1 if unvoiced or silent."""
    pairs = f0[: 2 * len(phone)].reshape(-1, 2)
    voiced = pairs > 0
    count = voiced.sum(1)
    logs = np.where(voiced, np.log(np.maximum(pairs, 1.0)), 0.0).sum(1) / np.maximum(count, 1)
    usable = (count > 0) & (phone != SILENCE)
    if not usable.any():
        return np.ones(len(phone), np.int64)
    offset = logs - logs[usable].mean()
    level = 1 + (offset > LEVEL_STEP).astype(np.int64) - (offset < -LEVEL_STEP).astype(np.int64)
    return np.where(usable, level, 1)
