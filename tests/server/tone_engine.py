"""A small real engine for tests: one tone a word, its pitch told by the voice and the word.

It keeps the engine's contract in full (text queue, back-pressure by pulling, cancel, marked audio
only) and is deterministic, so that a test can say exactly which samples must arrive.
"""

from __future__ import annotations

import asyncio
import re
import time
import zlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from antiphon.engine.errors import SynthesisFailed, UnknownVoice
from antiphon.engine.interface import (
    Capabilities,
    FinishReason,
    Mode,
    SpeechAudio,
    SpeechEvent,
    SpeechFinished,
    SpeechProgress,
    SpeechRequest,
    VoiceInfo,
)
from antiphon.engine.text.validate import validate_text
from antiphon.engine.turn import Flush, TextQueue
from antiphon.engine.watermark.interface import Watermark
from antiphon.engine.watermark.marked import FloatSamples

RATE = 24_000
VOICES = ("low", "mid", "high", "top")
WORD_SAMPLES = 4_800
"""0.2 s a word: five speech tokens of the real engines."""
_WORD = re.compile(r"\S+")


def word_tone(voice: str, word: str) -> float:
    """Frequency in Hz of a word in a voice; different for every pair used in the tests."""
    return 200.0 + 900.0 * VOICES.index(voice) + zlib.crc32(word.encode()) % 600


def word_samples(voice: str, word: str) -> FloatSamples:
    """(WORD_SAMPLES,) tone of a word, faded at both ends."""
    t = np.arange(WORD_SAMPLES) / RATE
    fade = np.minimum(1, np.minimum(t, t[::-1]) / 0.01)
    return (0.4 * fade * np.sin(2 * np.pi * word_tone(voice, word) * t)).astype(np.float32)


def speech(voice: str, text: str) -> FloatSamples:
    """What a whole turn sounds like."""
    words = _WORD.findall(text)
    return np.concatenate([word_samples(voice, word) for word in words])


@dataclass
class Behaviour:
    """How the engine behaves; tests change it."""

    seconds_per_word: float = 0.0
    """Time that synthesis of one word takes."""
    fail_at_word: int | None = None
    crash_at_word: int | None = None
    cancel_takes_s: float = 0.0


@dataclass
class Counters:
    """What the engine did, for tests of cancel and back-pressure."""

    opened: int = 0
    open_now: int = 0
    words: int = 0
    cancelled: list[float] = field(default_factory=list)


class ToneSession:
    def __init__(self, engine: ToneEngine, request: SpeechRequest) -> None:
        self._engine = engine
        self._voice = request.voice
        self._text = TextQueue(engine.text_queue_characters)
        self._mark = engine.watermark.stream(RATE)
        self._cancelled = asyncio.Event()
        self._closed = False
        self._samples = 0
        self._characters = 0

    async def push_text(self, text: str) -> None:
        validate_text(text)
        await self._text.put(text)

    async def flush(self) -> None:
        self._text.flush()

    async def end_text(self) -> None:
        self._text.end()

    async def events(self) -> AsyncIterator[SpeechEvent]:
        buffered = ""
        async for item in self._text:
            if isinstance(item, Flush):
                whole, rest = buffered, ""
            else:
                # A word is known to be whole once something follows it.
                buffered += item
                whole, rest = buffered[: _last_space(buffered)], buffered[_last_space(buffered) :]
            async for event in self._speak(whole):
                yield event
            buffered = rest
            if self._cancelled.is_set():
                break
        async for event in self._speak(buffered):
            yield event
        if self._cancelled.is_set():
            yield SpeechFinished(FinishReason.CANCELLED, self._samples)
            return
        tail = self._mark.finish()
        if len(tail):
            self._samples += len(tail)
            yield SpeechAudio(tail)
        reason = FinishReason.STOP if self._samples else FinishReason.EMPTY
        yield SpeechFinished(reason, self._samples, self._samples // 960)

    async def _speak(self, text: str) -> AsyncIterator[SpeechEvent]:
        start = self._characters
        for match in _WORD.finditer(text):
            if self._cancelled.is_set():
                return
            began = time.monotonic()
            await self._synthesise()
            if self._cancelled.is_set():
                return
            at_s = self._samples / RATE
            audio = self._mark.push(word_samples(self._voice, match.group()))
            self._samples += len(audio)
            yield SpeechAudio(audio, {"tone": time.monotonic() - began})
            self._characters = start + match.end()
            yield SpeechProgress(match.group(), self._characters, at_s, at_s + WORD_SAMPLES / RATE)
        self._characters = start + len(text)

    async def _synthesise(self) -> None:
        behaviour, counters = self._engine.behaviour, self._engine.counters
        if behaviour.seconds_per_word:
            waiting = asyncio.ensure_future(self._cancelled.wait())
            await asyncio.wait({waiting}, timeout=behaviour.seconds_per_word)
            waiting.cancel()
        if behaviour.fail_at_word == counters.words:
            raise SynthesisFailed("The tone came out as not a number.")
        if behaviour.crash_at_word == counters.words:
            raise ZeroDivisionError("secret text")
        counters.words += 1

    async def cancel(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._cancelled.set()
        self._text.close()
        if self._engine.behaviour.cancel_takes_s:
            await asyncio.sleep(self._engine.behaviour.cancel_takes_s)
        self._engine.counters.open_now -= 1
        self._engine.counters.cancelled.append(time.monotonic())


def _last_space(text: str) -> int:
    return len(text) - len(re.split(r"\s", text)[-1])


class ToneEngine:
    """See the module."""

    def __init__(self, watermark: Watermark, *, name: str = "tone") -> None:
        self.watermark = watermark
        self.behaviour = Behaviour()
        self.counters = Counters()
        self.text_queue_characters = 500
        self._name = name
        self.ready = True

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            model=self._name,
            sample_rate=RATE,
            modes=frozenset({Mode.PRESET}),
            languages=frozenset({"en"}),
            speaks_before_clause_end=True,
            speed=(0.5, 2.0),
            hop_tokens=(5, 50),
        )

    def voices(self) -> Sequence[VoiceInfo]:
        return [VoiceInfo(name, "en", f"the {name} tones", Mode.PRESET) for name in VOICES]

    async def warm_up(self) -> None:
        session = await self.open_session(SpeechRequest("low"))
        await session.push_text("warm")
        await session.end_text()
        async for _ in session.events():
            pass
        await session.cancel()
        self.counters = Counters()

    def check_voice(self, name: str) -> None:
        if name not in VOICES:
            raise UnknownVoice("No such tone.", field="voice")

    async def open_session(self, request: SpeechRequest) -> ToneSession:
        self.check_voice(request.voice)
        self.counters.opened += 1
        self.counters.open_now += 1
        return ToneSession(self, request)

    async def close(self) -> None:
        """Nothing is held."""
