"""What the native protocol writes, without sockets."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any

import pytest

from antiphon.engine.interface import SpeechRequest
from antiphon.server.audio import AudioFormat
from antiphon.server.protocols.native_frames import NativeFrames
from antiphon.server.settings import Split, TurnSettings
from antiphon.server.turn_events import (
    Audio,
    Done,
    Effect,
    Feed,
    Opened,
    Progress,
    TurnReport,
)

TEXT = "One two. Three."


def settings(**changes: Any) -> TurnSettings:
    return TurnSettings(
        **{
            "model": "m",
            "request": SpeechRequest("v"),
            "format": AudioFormat.PCM,
            "sample_rate": 24_000,
            "watermark": "none",
            **changes,
        }
    )


def packets(seconds: float, start: int = 0) -> list[Effect]:
    """20 ms messages, each numbered."""
    return [Audio(0, "", bytes([start + i]), 480, 0.02) for i in range(round(seconds / 0.02))]


def words() -> list[Effect]:
    return [
        Progress(0, "", "One", 3, 0, 0.0, 0.2),
        Progress(0, "", "two.", 8, 0, 0.2, 0.4),
        Progress(0, "", "Three.", 15, 0, 0.4, 0.6),
    ]


def done(chosen: TurnSettings) -> Effect:
    return Done(TurnReport(0, "", chosen, "stop", 14_400, 15, 0.1, 0.1, 0, 0.0))


def written(
    chosen: TurnSettings, effects: Iterable[Effect], contexts: int = 1
) -> list[dict[str, Any] | bytes]:
    frames = NativeFrames("s")
    out = []
    for effect in [Opened(0, "", chosen), Feed(0, TEXT), *effects, done(chosen)]:
        for message in frames.write(effect, contexts=contexts):
            out.append(message if isinstance(message, bytes) else json.loads(message))
    return out


def sentences(messages: list[dict[str, Any] | bytes]) -> list[bytes]:
    """Audio of each sentence, by the starts and ends around it."""
    found: list[bytes] = []
    open_now = False
    for message in messages:
        if isinstance(message, bytes):
            assert open_now
            found[-1] += message
        elif message["type"] == "audio.start":
            assert not open_now
            assert message["sentence_index"] == len(found)
            found.append(b"")
            open_now = True
        elif message["type"] == "audio.chunk":
            assert open_now
            found[-1] += base64.b64decode(message["audio_b64"])
        elif message["type"] == "audio.done":
            assert message["total_bytes"] == len(found[-1])
            open_now = False
    assert not open_now
    return found


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("order", ["before", "after", "all before", "late"])
def test_sentences_are_cut_where_they_end_in_the_audio(order: str, timed: bool) -> None:
    chosen = settings(split=Split.SENTENCE, word_timestamps=timed)
    audio = [packets(0.2, 10 * i) for i in range(3)]
    steps: list[Effect] = []
    if order == "all before":
        steps = [*words(), *audio[0], *audio[1], *audio[2]]
    elif order == "late":
        steps = [*audio[0], *audio[1], *audio[2], *words()]
    else:
        for word, sound in zip(words(), audio, strict=True):
            steps += [word, *sound] if order == "before" else [*sound, word]
    messages = written(chosen, steps)
    expected = [bytes(range(20)), bytes(range(20, 30))]
    if order == "late":
        # What was sent before the end was known stays where it was; no word is lost.
        expected = [bytes(range(30)), b""] if timed else [bytes(range(30))]
    assert sentences(messages) == expected
    if timed:
        told = [
            (word["word"], word["start_ms"])
            for message in messages
            if isinstance(message, dict) and message["type"] == "audio.chunk"
            for word in message["timestamps"] or []
        ]
        assert told == [("One", 0.0), ("two.", 200.0), ("Three.", 0.0)]


def test_a_whole_turn_is_one_sentence_by_default() -> None:
    messages = written(settings(), packets(0.6) + words())
    assert sentences(messages) == [bytes(range(30))]
    starts = [m for m in messages if isinstance(m, dict) and m["type"] == "audio.start"]
    assert [start["sentence_text"] for start in starts] == [TEXT]


def test_audio_is_json_while_several_contexts_are_configured() -> None:
    assert any(isinstance(message, bytes) for message in written(settings(), packets(0.1)))
    messages = written(settings(), packets(0.1), contexts=2)
    assert not any(isinstance(message, bytes) for message in messages)
    assert sentences(messages) == [bytes(range(5))]


def test_a_phrase_shares_its_time_among_its_words() -> None:
    chosen = settings(word_timestamps=True)
    phrase = Progress(0, "", "One two. Three.", 15, 0, 0.0, 0.65)
    messages = written(chosen, [phrase, *packets(0.6)])
    (timed,) = [
        message["timestamps"]
        for message in messages
        if isinstance(message, dict) and message.get("timestamps")
    ]
    assert [word["word"] for word in timed] == ["One", "two.", "Three."]
    assert [word["end_ms"] for word in timed] == [150.0, 350.0, 650.0]


def test_a_word_is_told_once_its_audio_was_sent() -> None:
    messages = written(settings(), [*words(), *packets(0.6)])
    sent_s, told = 0.0, []
    for message in messages:
        if isinstance(message, bytes):
            sent_s += 0.02
        elif message["type"] == "progress":
            told.append(message["text"])
            assert abs(sent_s - message["end_ms"] / 1000) < 0.0201
            assert message["samples"] == round(sent_s * 24_000)
    assert told == ["One", "two.", "Three."]
