"""What the native protocol writes: effects of the turn machine as JSON and binary messages.

Free of I/O. Keeps what a turn needs for its numbering: sentences, chunks, byte counts, words.
"""

from __future__ import annotations

import base64
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from antiphon.server.errors import describe
from antiphon.server.settings import Split, TurnSettings
from antiphon.server.turn_events import (
    Audio,
    ClientEffect,
    CloseConnection,
    Done,
    Effect,
    Feed,
    Opened,
    Progress,
    Ready,
    Refused,
)

_SENTENCE_ENDS = frozenset(".!?。！？…")
_CLAUSE_ENDS = _SENTENCE_ENDS | frozenset(",;:，；：、")
_END_TOLERANCE_S = 0.001
"""A sentence ends with the audio message that its end falls into."""
_FRAME_S = 0.02
"""Encoders keep up to a frame of what an engine has handed out."""
_encoder = msgspec.json.Encoder()


@dataclass(slots=True)
class _TurnFrames:
    """Numbering of one turn."""

    context: str
    settings: TurnSettings
    text: str = ""
    sentence: int = 0
    sentence_from: int = 0
    """Characters of the turn's text before this sentence."""
    known_to: int = 0
    """Characters of the turn's text before the sentence whose end is looked for."""
    started: bool = False
    sentences: int = 0
    bytes: int = 0
    samples: int = 0
    chunk: int = 0
    sentence_start_s: float = 0.0
    position_s: float = 0.0
    ends: deque[tuple[float, int]] = field(default_factory=deque)
    """Where sentences end that are known and not yet sent: seconds, and characters of the text."""
    progress: deque[Progress] = field(default_factory=deque)
    """What is to be told once its audio was sent."""
    words: deque[tuple[str, float, float]] = field(default_factory=deque)
    """Words not yet sent, with start and end in seconds of the turn."""

    def take_words(self) -> list[dict[str, Any]]:
        """Words of this sentence that are known, with their times in it."""
        until_s = self.ends[0][0] + _END_TOLERANCE_S if self.ends else math.inf
        taken = []
        while self.words and self.words[0][2] <= until_s:
            word, start_s, end_s = self.words.popleft()
            taken.append(
                {
                    "word": word,
                    "start_ms": _ms(max(0.0, start_s - self.sentence_start_s)),
                    "end_ms": _ms(max(0.0, end_s - self.sentence_start_s)),
                }
            )
        return taken


class NativeFrames:
    """Writes the messages of one connection."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._turns: dict[int, _TurnFrames] = {}

    def write(self, effect: Effect, *, contexts: int) -> Iterator[str | bytes]:
        """The messages of one effect, in order. `contexts` is how many are configured."""
        match effect:
            case Ready(context, settings):
                yield self._json("session.started", context, **_session(self._session_id, settings))
            case Opened(turn, context, settings):
                self._turns[turn] = _TurnFrames(context, settings)
            case Feed(turn, text):
                if frames := self._turns.get(turn):
                    frames.text += text
            case Audio():
                yield from self._audio(effect, contexts)
            case Progress():
                yield from self._progress(effect)
            case Refused():
                yield self._refused(effect)
            case Done():
                yield from self._done(effect)

    def _audio(self, effect: Audio, contexts: int) -> Iterator[str | bytes]:
        frames = self._turns[effect.turn]
        if not frames.started:
            yield self._start(effect.turn, frames)
        frames.samples += effect.samples
        start_s, frames.position_s = frames.position_s, frames.position_s + effect.seconds
        frames.bytes += len(effect.payload)
        # A binary message cannot say whose it is.
        if frames.settings.word_timestamps or contexts > 1:
            yield self._chunk(effect.turn, frames, effect.payload, start_s)
        else:
            yield effect.payload
        yield from self._reached(effect.turn, frames)

    def _start(self, turn: int, frames: _TurnFrames) -> str:
        frames.started = True
        frames.sentences += 1
        frames.sentence_start_s = frames.position_s
        frames.bytes = frames.chunk = 0
        return self._json(
            "audio.start",
            frames.context,
            utterance_index=turn,
            sentence_index=frames.sentence,
            sentence_text=self._sentence_text(frames),
            format=frames.settings.format.value,
            sample_rate=frames.settings.sample_rate,
        )

    def _sentence_text(self, frames: _TurnFrames) -> str:
        text = frames.text[frames.sentence_from :]
        if frames.settings.split is not Split.NONE:
            text = text[: _first_end(text, frames.settings.split) or len(text)]
        return text.strip()

    def _chunk(self, turn: int, frames: _TurnFrames, payload: bytes, start_s: float) -> str:
        words = frames.take_words() if frames.settings.word_timestamps else []
        message = self._json(
            "audio.chunk",
            frames.context,
            utterance_index=turn,
            sentence_index=frames.sentence,
            chunk_id=frames.chunk,
            chunk_start_ms=_ms(start_s - frames.sentence_start_s),
            chunk_end_ms=_ms(frames.position_s - frames.sentence_start_s),
            sample_rate=frames.settings.sample_rate,
            audio_b64=base64.b64encode(payload).decode("ascii"),
            timestamps=words or None,
        )
        frames.chunk += 1
        return message

    def _progress(self, effect: Progress) -> Iterator[str]:
        frames = self._turns[effect.turn]
        frames.progress.append(effect)
        if frames.settings.word_timestamps:
            frames.words.extend(_timed_words(effect))
        split = frames.settings.split
        said = frames.text[frames.known_to : effect.characters]
        if split is not Split.NONE and _first_end(said, split):
            frames.ends.append((effect.end_s, effect.characters))
            frames.known_to = effect.characters
        yield from self._reached(effect.turn, frames)

    def _reached(self, turn: int, frames: _TurnFrames) -> Iterator[str]:
        """Tell of the words and end the sentences whose audio was sent.

        Engines tell of a word before its audio or after it.
        """
        while frames.progress and frames.position_s >= frames.progress[0].end_s - _FRAME_S:
            yield self._told(frames, frames.progress.popleft())
        while frames.ends and frames.position_s >= frames.ends[0][0] - _END_TOLERANCE_S:
            if frames.words and not frames.started:
                # Told of after its audio went out with the sentence before; words are never lost.
                yield self._start(turn, frames)
            if frames.started:
                yield from self._end_sentence(turn, frames)
                frames.sentence += 1
            _, frames.sentence_from = frames.ends.popleft()

    def _told(self, frames: _TurnFrames, effect: Progress) -> str:
        return self._json(
            "progress",
            frames.context,
            utterance_index=effect.turn,
            text=effect.text,
            characters=effect.characters,
            samples=frames.samples,
            start_ms=_ms(effect.start_s),
            end_ms=_ms(effect.end_s),
        )

    def _end_sentence(self, turn: int, frames: _TurnFrames, error: bool = False) -> Iterator[str]:
        if not frames.started:
            return
        if frames.words and frames.settings.word_timestamps:
            yield self._chunk(turn, frames, b"", frames.position_s)
        frames.started = False
        yield self._json(
            "audio.done",
            frames.context,
            utterance_index=turn,
            sentence_index=frames.sentence,
            total_bytes=frames.bytes,
            error=error,
        )

    def _refused(self, effect: Refused) -> str:
        extra = {} if effect.turn is None else {"utterance_index": effect.turn}
        return self._json("error", effect.context or "", **describe(effect.error), **extra)

    def _done(self, effect: Done) -> Iterator[str]:
        report = effect.report
        frames = self._turns.pop(report.turn)
        if report.finish_reason not in ("cancelled", "error"):
            for progress in frames.progress:
                yield self._told(frames, progress)
        if frames.words and not frames.started:
            yield self._start(report.turn, frames)
        yield from self._end_sentence(report.turn, frames, error=report.finish_reason == "error")
        first = report.first_packet_s
        yield self._json(
            "session.done",
            report.context,
            utterance_index=report.turn,
            total_sentences=frames.sentences,
            cancelled=report.finish_reason == "cancelled",
            finish_reason=report.finish_reason,
            samples=report.samples,
            sample_rate=report.settings.sample_rate,
            characters=report.characters,
            first_packet_ms=None if first is None else round(1000 * first, 2),
            first_packet_stages_ms={k: round(1000 * s, 2) for k, s in report.stages.items()},
            rtf=None if report.rtf is None else round(report.rtf, 4),
            gaps=report.gaps,
            gap_ms=round(1000 * report.gap_s, 1),
        )

    @staticmethod
    def _json(kind: str, context: str, **fields: Any) -> str:
        message: dict[str, Any] = {"type": kind}
        if context:
            message["context_id"] = context
        message.update(fields)
        return _encoder.encode(message).decode("utf-8")


def is_for_client(effect: Effect) -> bool:
    """Whether `NativeFrames.write` may yield something for it."""
    return isinstance(effect, ClientEffect) and not isinstance(effect, CloseConnection)


def _session(session_id: str, settings: TurnSettings) -> dict[str, Any]:
    request = settings.request
    return {
        "session_id": session_id,
        "model": settings.model,
        "voice": request.voice,
        "language": request.language,
        "response_format": settings.format.value,
        "sample_rate": settings.sample_rate,
        "speed": request.speed,
        "watermark": settings.watermark,
        "hop": settings.hop_tokens,
        "word_timestamps": settings.word_timestamps,
        "split_granularity": settings.split.value,
    }


def _ms(seconds: float) -> float:
    return round(1000 * seconds, 1)


def _first_end(text: str, split: Split) -> int | None:
    """Characters up to and including the first end of a sentence or clause, if there is one."""
    ends = _SENTENCE_ENDS if split is Split.SENTENCE else _CLAUSE_ENDS
    for i, character in enumerate(text):
        if character in ends and (i + 1 == len(text) or text[i + 1].isspace()):
            return i + 1
    return None


def _timed_words(effect: Progress) -> Iterator[tuple[str, float, float]]:
    """Place the words of a progress inside its span, by length where there are several."""
    words = effect.text.split()
    total = sum(len(word) for word in words)
    at = effect.start_s
    for word in words:
        length = (effect.end_s - effect.start_s) * len(word) / total
        yield word, at, at + length
        at += length
