"""Whole texts of every kind through a session: what is spoken, and how the turn ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from antiphon.engine.acoustic.interface import AcousticSettings
from antiphon.engine.checkpoint import open_checkpoint
from antiphon.engine.cosyvoice import CosyVoiceEngine
from antiphon.engine.errors import InvalidRequest
from antiphon.engine.generations import load_stages, whole_front_end
from antiphon.engine.interface import (
    FinishReason,
    SpeechAudio,
    SpeechFinished,
    SpeechProgress,
    SpeechRequest,
)
from antiphon.engine.session import CosyVoiceSession, SessionSettings
from antiphon.engine.speech_lm.request import Generation, SpeechLMRequest
from antiphon.engine.text.grammar import WetextGrammar
from antiphon.engine.text.whole_stream import MAX_WHOLE_TEXT, WholeTextStream
from antiphon.engine.text.whole_text import WholeTextFrontEnd
from antiphon.engine.watermark.none import NoWatermark
from tests import golden

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONG = "The 5 foxes paid $3.50 to me, and then they went home. " * 182
"""10,010 characters."""


class Asked:
    """Passes requests on to the speech LM and remembers their texts."""

    def __init__(self, engine: CosyVoiceEngine) -> None:
        self.lm = engine._stages.lm
        self.texts: list[list[int]] = []
        generate = self.lm.generate

        def remember(request: SpeechLMRequest) -> Generation:
            assert isinstance(request.text, list), "a whole text is given in the plain layout"
            self.texts.append(request.text)
            return generate(request)

        self.lm.generate = remember  # type: ignore[method-assign]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[2, 3])
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[CosyVoiceEngine]:
    pytest.importorskip("wetext", reason="the optional grammar package is not installed")
    opened = open_checkpoint(golden.model_dir(request.param))
    stages = load_stages(opened, NoWatermark(), max_sessions=1)
    # Random weights never say that the text is spoken: the greatest length ends every piece.
    stages = replace(stages, length_ratios=(0.5, 1.5))
    made = CosyVoiceEngine(
        opened,
        stages,
        settings=SessionSettings(acoustic=AcousticSettings(steps=1, cfg_rate=0.0)),
        grammar=WetextGrammar(),
    )
    yield made
    await made.close()


async def _written(session: CosyVoiceSession, text: str) -> None:
    for start in range(0, len(text), 3000):
        await session.push_text(text[start : start + 3000])
    await session.end_text()


async def spoken(
    engine: CosyVoiceEngine, text: str, language: str | None = None
) -> tuple[SpeechFinished, list[SpeechProgress], list[list[int]]]:
    """End, progress, and the text ids that the speech LM was asked for."""
    asked = Asked(engine)
    request = SpeechRequest("tiny_speaker", language=language, seed=1, whole_text=True)
    session = await engine.open_session(request)
    writing = asyncio.create_task(_written(session, text))
    events = [event async for event in session.events()]
    await writing
    audio = [event for event in events if isinstance(event, SpeechAudio)]
    end = events[-1]
    assert isinstance(end, SpeechFinished)
    assert end.samples == sum(len(event.audio) for event in audio) == 960 * end.speech_tokens
    return end, [event for event in events if isinstance(event, SpeechProgress)], asked.texts


@pytest.mark.parametrize(
    "text", ["", " \n\t", "...?!", "。。。", "——", "😀🎉👍🏽", "👨‍👩‍👧", "\u200b\ufeff"]
)
async def test_nothing_to_speak_is_empty(engine: CosyVoiceEngine, text: str) -> None:
    end, progress, asked = await spoken(engine, text)
    assert (end.reason, end.samples, progress, asked) == (FinishReason.EMPTY, 0, [], [])


@pytest.mark.parametrize(
    ("text", "language", "pieces"),
    [
        ("a", None, ["a."]),
        ("Hi", None, ["Hi."]),
        ("好", None, ["好。"]),
        ("5", None, ["five."]),
        ("今天是2024年3月15日，星期五。", None, ["今天是二零二四年三月十五日，星期五。"]),
        ("今日は3月15日です", None, ["今日は三月十五日です。"]),
        ("3月15日", "ja", ["三月十五日。"]),
        ("我爱 Python 5 技术 😀", None, ["我爱Python five技术。"]),
        ("Es kostet 5 Euro", "de", ["Es kostet 5 Euro."]),
        ("שלום עולם 5", None, ["שלום עולם five."]),
        ("مرحبا بالعالم", None, ["مرحبا بالعالم."]),
        ("one\ttwo\r\nthree", None, ["one two three."]),
    ],
)
async def test_each_kind_of_text_has_its_pieces(
    engine: CosyVoiceEngine, text: str, language: str | None, pieces: list[str]
) -> None:
    if language is not None and language not in engine.capabilities.languages:
        pytest.skip("not a language of this generation")
    end, progress, asked = await spoken(engine, text, language)
    assert asked == [engine._checkpoint.tokenizer.encode(piece) for piece in pieces]
    assert end.reason is FinishReason.LENGTH
    assert progress[-1].characters == len(text)


async def test_ten_thousand_characters(
    engine: CosyVoiceEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = replace(engine._stages, length_ratios=(0.0, 0.03))
    monkeypatch.setattr(engine, "_stages", short)
    end, progress, asked = await spoken(engine, LONG)
    written = "The five foxes paid three dollars and fifty cents to me, and then they went home."
    words = engine._checkpoint.tokenizer.encode(" ".join([written] * 182))
    assert abs(sum(map(len, asked)) - len(words)) < 182
    assert len(asked) > 50
    assert end.reason is FinishReason.LENGTH
    characters = [event.characters for event in progress]
    assert characters == sorted(characters)
    assert characters[-1] == len(LONG)


async def test_controls_and_more_than_a_book_are_refused(engine: CosyVoiceEngine) -> None:
    session = await engine.open_session(SpeechRequest("tiny_speaker", whole_text=True))
    for text in ("a\x00b", "\x1b[0m", "\ud800"):
        with pytest.raises(InvalidRequest) as refused:
            await session.push_text(text)
        assert refused.value.field == "text"
    await session.cancel()
    stream = WholeTextStream(WholeTextFrontEnd(len), engine._checkpoint.tokenizer)
    stream.push("a" * MAX_WHOLE_TEXT)
    with pytest.raises(InvalidRequest) as refused:
        stream.push("b")
    assert refused.value.limit == MAX_WHOLE_TEXT


async def test_tags_of_version_3_are_performed_in_whole_texts(engine: CosyVoiceEngine) -> None:
    if engine._checkpoint.generation != 3:
        pytest.skip("only version 3 has phones and Pinyin")
    tokenizer = engine._checkpoint.tokenizer
    for text, language in (("[h][ào]啊", "zh"), ("[T][AH0][M] now [laughter]", "en")):
        make = whole_front_end(engine._checkpoint, language, None)
        assert make is not None
        stream = make()
        ids = [one for p in [*stream.push(text), *stream.end()] for one in p.ids]
        tags = [tokenizer.token_id(f"[{tag}") for tag in text.replace("]", "]\n").split("[")[1:]
                for tag in [tag.split("\n")[0]]]  # fmt: skip
        assert [one for one in ids if one in tags] == tags


async def test_version_1_and_nano() -> None:
    first = whole_front_end(open_checkpoint(golden.speaking_model_dir(1)), None, None)
    assert first is not None
    stream = first()
    assert stream.push("Hello there. ") == []
    (piece,) = stream.end()
    assert piece.text == "Hello there."
    house = golden.ROOT.parent / "shared" / "nano"
    if not house.is_dir():
        pytest.skip("the nano checkpoint lies in ../shared")
    assert whole_front_end(open_checkpoint(house), None, None) is None
