"""One turn of a preset voice.

text pieces ─► normaliser ─► clauses ─► voice ─► watermark ─► events
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import Executor

import numpy as np

from antiphon.engine.interface import (
    FinishReason,
    SpeechAudio,
    SpeechEvent,
    SpeechFinished,
    SpeechProgress,
)
from antiphon.engine.preset.voice import SAMPLE_RATE, HibariVoice, SpokenClause
from antiphon.engine.silence import SilenceGuard
from antiphon.engine.text.clauses import Clause, ClauseLimits, ClauseSplitter
from antiphon.engine.text.normalizer import StreamingNormalizer
from antiphon.engine.text.validate import validate_text
from antiphon.engine.turn import Flush, TextQueue, Turn
from antiphon.engine.watermark.interface import WatermarkStream
from antiphon.engine.watermark.marked import FloatSamples, MarkedAudio

CLAUSES = ClauseLimits(first_max_words=5)
"""A caller waits for the whole first clause, so it is cut earlier than the others."""
PAUSES_S = {",": 0.12, ";": 0.2, ":": 0.2, ".": 0.32, "!": 0.32, "?": 0.32}
PIECE = SAMPLE_RATE // 2
"""Samples of one event: what a cancel may still let through, and what a reader gets at a time."""


class PresetSession(Turn):
    """One turn. See `SpeechSession` for its contract."""

    def __init__(
        self,
        voice: HibariVoice,
        worker: Executor,
        mark: WatermarkStream,
        *,
        speed: float,
        seed: int,
        text_queue_characters: int,
    ) -> None:
        super().__init__()
        self._voice = voice
        self._worker = worker
        self._mark = mark
        self._speed = speed
        self._seed = seed
        self._text = TextQueue(text_queue_characters)
        self._guard = SilenceGuard(SAMPLE_RATE)
        self._captions = _Captions()
        self._first_text: float | None = None
        self._handed_out = 0

    async def push_text(self, text: str) -> None:
        """Add text; waits while the queue is full.

        Raises:
            InvalidRequest: control characters or lone surrogates.
        """
        validate_text(text)
        if self._first_text is None:
            self._first_text = time.monotonic()
        await self._text.put(text)

    async def flush(self) -> None:
        """Speak what is buffered without waiting for the end of its clause."""
        self._text.flush()

    async def end_text(self) -> None:
        """No more text will come."""
        self._text.end()

    async def _events(self) -> AsyncGenerator[SpeechEvent, None]:
        mark: str | None = None
        try:
            number = 0
            async for clause in self._clauses():
                timings = self._waited_for_text()
                started = time.monotonic()
                spoken = await self._in_worker(clause, number)
                timings["voice"] = time.monotonic() - started
                async for event in self._audio(_after_pause(spoken, mark), timings):
                    yield event
                mark = clause.words[-1].mark
                number += 1
            if number:
                self._guard.finish()
                for event in self._out(await asyncio.to_thread(self._mark.finish), {}):
                    yield event
            reason = FinishReason.STOP if number else FinishReason.EMPTY
            yield SpeechFinished(reason, self._handed_out)
        finally:
            self._text.close()

    async def _clauses(self) -> AsyncGenerator[Clause, None]:
        normalizer, splitter = StreamingNormalizer(), ClauseSplitter(CLAUSES)
        async for item in self._text:
            if isinstance(item, Flush):
                complete = splitter.push(normalizer.flush()) + splitter.flush()
            else:
                complete = splitter.push(normalizer.push(item))
            for clause in complete:
                yield clause
        for clause in splitter.push(normalizer.end()) + splitter.end():
            yield clause

    async def _in_worker(self, clause: Clause, number: int) -> SpokenClause:
        loop = asyncio.get_running_loop()
        seed = (self._seed + number) % 2**63
        return await loop.run_in_executor(
            self._worker, lambda: self._voice.speak(clause, speed=self._speed, seed=seed)
        )

    async def _audio(
        self, spoken: SpokenClause, timings: dict[str, float]
    ) -> AsyncGenerator[SpeechEvent, None]:
        self._guard.check(spoken.samples)
        self._captions.add(spoken)
        for start in range(0, len(spoken.samples), PIECE):
            piece = spoken.samples[start : start + PIECE]
            started = time.monotonic()
            marked = await asyncio.to_thread(self._mark.push, piece)
            timings["watermark"] = time.monotonic() - started
            for event in self._out(marked, timings):
                yield event
            timings = {}

    def _out(self, marked: MarkedAudio, timings: dict[str, float]) -> Iterator[SpeechEvent]:
        if not len(marked):
            return
        self._handed_out += len(marked)
        yield from self._captions.until(self._handed_out)
        yield SpeechAudio(marked, timings)

    def _waited_for_text(self) -> dict[str, float]:
        if self._handed_out or self._first_text is None:
            return {}
        return {"text": time.monotonic() - self._first_text}


def _after_pause(spoken: SpokenClause, mark: str | None) -> SpokenClause:
    """Put the pause of the mark before a clause in front of it; None is the turn's beginning."""
    pause: FloatSamples = np.zeros(int(PAUSES_S.get(mark or "", 0.0) * SAMPLE_RATE), np.float32)
    return SpokenClause(
        np.concatenate([pause, spoken.samples]),
        tuple((word, end + len(pause)) for word, end in spoken.words),
    )


class _Captions:
    """Words that were synthesised and not yet handed out."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[str, int, int]] = deque()
        self._samples = 0
        self._reported = 0.0

    def add(self, spoken: SpokenClause) -> None:
        """Take note of a clause, behind those before it."""
        for word, end in spoken.words:
            self._waiting.append((word.text + word.mark, word.source_end, self._samples + end))
        self._samples += len(spoken.samples)

    def until(self, samples: int) -> Iterator[SpeechProgress]:
        """Yield the words that ended within the first `samples` samples, each once."""
        while self._waiting and self._waiting[0][2] <= samples:
            text, characters, end = self._waiting.popleft()
            end_s = end / SAMPLE_RATE
            yield SpeechProgress(text, characters, self._reported, end_s)
            self._reported = end_s
