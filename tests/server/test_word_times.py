"""Nano over the protocol: when words are said to sound against what its speech LM really made."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from antiphon.engine.acoustic.interface import AcousticSettings
from antiphon.engine.checkpoint import open_checkpoint
from antiphon.engine.cosyvoice import CosyVoiceEngine
from antiphon.engine.generations import load_stages
from antiphon.engine.interface import SpeechProgress
from antiphon.engine.progress import ProgressTracker, ProportionalProgress
from antiphon.engine.session import SessionSettings
from antiphon.engine.text.text_stream import TextPiece
from antiphon.engine.watermark.none import NoWatermark
from tests import golden
from tests.sentences import HELD_OUT
from tests.server.harness import serving, talking

NANO = golden.ROOT.parent / "shared" / "nano"
NAMES = [
    *("AA", "AE", "AH", "AO", "AW", "AY", "B", "CH", "D", "DH", "EH", "ER", "EY", "F", "G", "HH"),
    *("IH", "IY", "JH", "K", "L", "M", "N", "NG", "OW", "OY", "P", "R", "S", "SH", "T", "TH"),
    *("UH", "UW", "V", "W", "Y", "Z", "ZH", "SIL"),
]
TOKEN_MS = 40

pytestmark = pytest.mark.skipif(not NANO.is_dir(), reason="the nano checkpoint lies in ../shared")


class Witness:
    """A tracker that writes down, segment by segment, what it is told."""

    def __init__(self, tracker: ProgressTracker) -> None:
        self._tracker = tracker
        self.segments: list[tuple[list[TextPiece], list[int]]] = []

    def begin_segment(self) -> None:
        self.segments.append(([], []))
        self._tracker.begin_segment()

    def piece(self, piece: TextPiece) -> None:
        self.segments[-1][0].append(piece)
        self._tracker.piece(piece)

    def token(self, code: int) -> None:
        self.segments[-1][1].append(code)
        self._tracker.token(code)

    def end_segment(self) -> None:
        self._tracker.end_segment()

    def until(self, spoken_s: float) -> list[SpeechProgress]:
        return self._tracker.until(spoken_s)


def by_counting(
    words: list[list[str]], marked: list[bool], codes: list[int]
) -> list[tuple[int, int]] | None:
    """First and last token border of each word, where every phone was said as written.

    A word that has its mark with it lasts to the next word; others end at a rest before it.
    """
    begins = [at for at, code in enumerate(codes) if code >= 120 and NAMES[code % 40] != "SIL"]
    if [NAMES[codes[at] % 40] for at in begins] != [phone for word in words for phone in word]:
        return None
    rests = [at for at, code in enumerate(codes) if NAMES[code % 40] == "SIL"]
    found, said = [], 0
    for word, has_mark in zip(words, marked, strict=True):
        first, last = begins[said], begins[said + len(word) - 1]
        said += len(word)
        borders = [*begins[said : said + 1], len(codes)]
        if not has_mark:
            borders += [at for at in rests if at > last]
        found.append((first, min(borders)))
    return found


def proportionally(pieces: list[TextPiece], codes: list[int]) -> list[SpeechProgress]:
    tracker = ProportionalProgress(8, 12, TOKEN_MS / 1000)
    tracker.begin_segment()
    for piece in pieces:
        tracker.piece(piece)
    for code in codes:
        tracker.token(code)
    tracker.end_segment()
    return tracker.until(float("inf"))


def witnessed() -> tuple[CosyVoiceEngine, list[Witness], Callable[[TextPiece], list[str]]]:
    checkpoint = open_checkpoint(NANO)
    stages = load_stages(checkpoint, NoWatermark(), max_sessions=1)
    stages = replace(stages, sampling=replace(stages.sampling, top_p=0.3))
    witnesses: list[Witness] = []

    def progress(seconds_a_token: float) -> ProgressTracker:
        witnesses.append(Witness(stages.progress(seconds_a_token)))
        return witnesses[-1]

    names = {
        checkpoint.tokenizer.token_id(f"[{phone}{stress}]"): phone
        for phone in NAMES
        for stress in ("", "0", "1", "2")
    }
    settings = SessionSettings(acoustic=AcousticSettings(steps=2))
    engine = CosyVoiceEngine(
        checkpoint, replace(stages, progress=progress), name="nano", settings=settings
    )
    return engine, witnesses, lambda piece: [names[i] for i in piece.ids if i in names]


async def test_progress_events_give_the_times_of_the_generated_codes() -> None:
    engine, witnesses, phones_of = witnessed()
    errors, errors_by_share, slips = [], [], 0
    async with serving(engine=engine, voice=None) as server, talking(server) as client:
        await client.configure(voice="hazel", seed=7, split_granularity="sentence")
        # Two segments in the first turn: the second one's times count from the turn's beginning.
        for text in (" ".join(HELD_OUT[:2]), HELD_OUT[2], HELD_OUT[8]):
            heard = await client.say(text, pieces=6)
            segments = witnesses[-1].segments
            events = iter(heard.of("progress"))
            told = []
            first = 0
            for pieces, codes in segments:
                mine = [next(events) for _ in pieces]
                told += mine
                spoken = [(p, e) for p, e in zip(pieces, mine, strict=True) if phones_of(p)]
                truth = by_counting(
                    [phones_of(p) for p, _ in spoken], [p.clause_end for p, _ in spoken], codes
                )
                shared = dict(zip(pieces, proportionally(pieces, codes), strict=True))
                slips += truth is None
                for (piece, event), (start, end) in zip(spoken, truth or [], strict=False):
                    assert event["start_ms"] == TOKEN_MS * (first + start)
                    errors.append(event["end_ms"] - TOKEN_MS * (first + end))
                    errors_by_share.append(1000 * shared[piece].end_s - TOKEN_MS * end)
                first += len(codes)
            assert next(events, None) is None
            assert heard.done["samples"] == 960 * first
            # The silence behind the last word is its sentence's, not another one.
            assert told[-1]["end_ms"] == TOKEN_MS * first
            assert len(heard.of("audio.start")) == heard.done["total_sentences"] == len(segments)
            assert re.findall(r"\w+", " ".join(e["text"] for e in told)) == re.findall(r"\w+", text)
            for before, after in pairwise(told):
                assert before["start_ms"] <= before["end_ms"] <= after["start_ms"]
    by_share = np.abs(errors_by_share).mean()
    print(f"{len(errors)} words, {slips} segments with slips; by share {by_share:.0f} ms off")
    assert len(errors) >= 12
    assert not np.any(errors)
    assert by_share > 80
