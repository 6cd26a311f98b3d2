"""One turn of speech in a preset voice.

    text pieces ─► words ─► clauses ─► symbols ─► model ─► joins ─► watermark ─► events

A clause is spoken as soon as it is complete, in a worker thread: some 10 ms of work for a second
of speech. Nothing is spoken ahead of the reader of `events`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np

from antiphon.engine.interface import (
    FinishReason,
    SpeechAudio,
    SpeechEvent,
    SpeechFinished,
    SpeechProgress,
)
from antiphon.engine.preset.joins import Speech, pause, trimmed
from antiphon.engine.preset.model import SAMPLE_RATE_HZ, PresetModel
from antiphon.engine.preset.phonemes import PhonemeString, SpokenWord, phoneme_strings
from antiphon.engine.preset.workers import Workers
from antiphon.engine.silence import SilenceGuard
from antiphon.engine.text.clauses import Clause, ClauseLimits, ClauseSplitter
from antiphon.engine.text.normalizer import StreamingNormalizer
from antiphon.engine.text.validate import validate_text
from antiphon.engine.turn import FLUSH, Flush, TextQueue, Turn
from antiphon.engine.watermark.interface import Watermark, WatermarkStream
from antiphon.engine.watermark.marked import FloatSamples, MarkedAudio

CLAUSES = ClauseLimits(first_max_words=5)
"""A listener waits for the whole first clause, so it is cut earlier than the others."""
T = TypeVar("T")
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class PresetStages:
    """What the sessions of one voice share."""

    model: PresetModel
    watermark: Watermark
    workers: Workers


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A word's sound, and the pause before it where a clause begins."""

    samples: FloatSamples
    pause_samples: int
    """Of `samples`, how many at the start are pause."""
    word: SpokenWord | None
    """None where one endless word is cut."""


@dataclass(slots=True)
class _Timings:
    text_s: float = 0.0
    model_s: float = 0.0
    watermark_s: float = 0.0

    def take(self) -> dict[str, float]:
        taken = {"text": self.text_s, "model": self.model_s, "watermark": self.watermark_s}
        self.text_s = self.model_s = self.watermark_s = 0.0
        return taken


class PresetSession(Turn):
    """See `SpeechSession` for its contract."""

    def __init__(
        self, stages: PresetStages, *, speed: float, seed: int, text_queue_characters: int
    ) -> None:
        super().__init__()
        self._stages = stages
        self._speed = speed
        self._rng = np.random.default_rng(seed)
        self._text = TextQueue(text_queue_characters)
        self._timings = _Timings()
        self._mark = stages.watermark.stream(SAMPLE_RATE_HZ)
        self._guard = SilenceGuard(SAMPLE_RATE_HZ)
        self._pushed = 0
        self._handed_out = 0
        self._last_mark: str | None = None
        self._unreported: deque[tuple[int, int, SpokenWord]] = deque()

    async def push_text(self, text: str) -> None:
        """Add text; waits while the queue is full.

        Raises:
            InvalidRequest: control characters or lone surrogates.
        """
        validate_text(text)
        await self._text.put(text)

    async def flush(self) -> None:
        """Speak what is buffered without waiting for the text that could change it."""
        self._text.flush()

    async def end_text(self) -> None:
        """No more text will come."""
        self._text.end()

    async def cancel(self) -> None:
        """See `SpeechSession`. A writer is let go of even if nobody has read the events yet."""
        await super().cancel()
        self._text.close()

    async def _events(self) -> AsyncGenerator[SpeechEvent, None]:
        try:
            async with aclosing(self._clauses()) as clauses:
                async for clause in clauses:
                    if isinstance(clause, Flush):
                        for event in await self._released():
                            yield event
                        continue
                    for stretch in await self._in_worker(self._speak, clause):
                        for event in await self._marked(stretch):
                            yield event
            self._guard.finish()
            for event in await self._released():
                yield event
            reason = FinishReason.STOP if self._pushed else FinishReason.EMPTY
            yield SpeechFinished(reason, self._handed_out)
        finally:
            self._text.close()

    async def _clauses(self) -> AsyncGenerator[Clause | Flush, None]:
        """Text front end: clauses, as soon as no later text can change them."""
        normalizer, splitter = StreamingNormalizer(), ClauseSplitter(CLAUSES)
        async for item in self._text:
            started = time.monotonic()
            if isinstance(item, Flush):
                ready = [*splitter.push(normalizer.flush()), *splitter.flush()]
            else:
                ready = splitter.push(normalizer.push(item))
            self._timings.text_s += time.monotonic() - started
            for clause in ready:
                yield clause
            if isinstance(item, Flush):
                yield FLUSH
        for clause in [*splitter.push(normalizer.end()), *splitter.end()]:
            yield clause

    def _speak(self, clause: Clause) -> list[_Stretch]:
        """Speak one clause; runs in a worker thread, one clause of a session at a time."""
        started = time.monotonic()
        stretches: list[_Stretch] = []
        for string in phoneme_strings(clause):
            utterance = self._stages.model.speak(string.symbols, self._speed, self._rng)
            before = pause(self._last_mark or "", self._speed)
            stretches += _by_word(before, trimmed(utterance), string)
            self._last_mark = string.mark
        self._timings.model_s += time.monotonic() - started
        return stretches

    async def _marked(self, stretch: _Stretch) -> list[SpeechEvent]:
        self._guard.check(stretch.samples)
        start = self._pushed + stretch.pause_samples
        self._pushed += len(stretch.samples)
        if stretch.word is not None:
            self._unreported.append((start, self._pushed, stretch.word))
        started = time.monotonic()
        audio = await self._in_worker(self._mark.push, stretch.samples)
        self._timings.watermark_s += time.monotonic() - started
        return self._hand_out(audio)

    async def _released(self) -> list[SpeechEvent]:
        """Give out what the watermark holds back: nothing follows for now."""
        if not self._mark.hold_back_samples and self._handed_out == self._pushed:
            return []
        finished, self._mark = self._mark, self._stages.watermark.stream(SAMPLE_RATE_HZ)
        return self._hand_out(await self._in_worker(_finish, finished))

    def _hand_out(self, audio: MarkedAudio) -> list[SpeechEvent]:
        self._handed_out += len(audio)
        events: list[SpeechEvent] = []
        if len(audio):
            events.append(SpeechAudio(audio, self._timings.take()))
        while self._unreported and self._unreported[0][1] <= self._handed_out:
            start, end, word = self._unreported.popleft()
            events.append(
                SpeechProgress(
                    word.text, word.source_end, start / SAMPLE_RATE_HZ, end / SAMPLE_RATE_HZ
                )
            )
        return events

    async def _in_worker(self, work: Callable[[A], T], item: A) -> T:
        return await self._stages.workers.run(work, item, heard=self._handed_out > 0)


def _finish(mark: WatermarkStream) -> MarkedAudio:
    return mark.finish()


def _by_word(before: FloatSamples, speech: Speech, string: PhonemeString) -> list[_Stretch]:
    """Cut a string's speech behind each of its words; the last takes the rest."""
    ends = [int(speech.symbol_ends[word.symbols_end - 1]) for word in string.words]
    words = string.words or (None,)
    borders = [0, *ends[:-1], len(speech.samples)]
    stretches = [
        _Stretch(speech.samples[start:end], 0, word)
        for word, (start, end) in zip(words, pairwise(borders), strict=True)
    ]
    first = stretches[0]
    samples = np.concatenate([before, first.samples])
    return [_Stretch(samples, len(before), first.word), *stretches[1:]]
