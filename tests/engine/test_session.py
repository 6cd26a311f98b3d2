"""The whole chain on the tiny random checkpoint: what it says is noise, how it says it is exact."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from antiphon.engine.checkpoint import open_checkpoint
from antiphon.engine.checkpoint.voices import StoredVoice, acoustic_prompt
from antiphon.engine.cosyvoice import CosyVoiceEngine
from antiphon.engine.errors import InvalidRequest, UnknownVoice, UnsupportedFeature
from antiphon.engine.generations import load_stages
from antiphon.engine.hops import HopSettings
from antiphon.engine.interface import (
    FinishReason,
    SpeechAudio,
    SpeechEvent,
    SpeechFinished,
    SpeechProgress,
    SpeechRequest,
)
from antiphon.engine.prompts import on_the_grid
from antiphon.engine.segments import SegmentLimits
from antiphon.engine.session import CosyVoiceSession, SessionSettings, SessionVoice
from antiphon.engine.speech_lm.request import Generation, SpeechLM, SpeechLMRequest
from antiphon.engine.voice.voice import LMPrompt
from antiphon.engine.watermark.none import NoWatermark
from tests import golden

TEXT = "Hello there, a small test. It has two sentences."
SAMPLES_A_TOKEN = 960


@pytest.fixture(scope="module")
def engine() -> CosyVoiceEngine:
    checkpoint = open_checkpoint(golden.model_dir(3))
    arrays = {
        name: golden.array(3, "frontend", name)
        for name in ("zero_shot.speech_token", "zero_shot.prompt_speech_feat", "embedding")
    }
    tokens = arrays["zero_shot.speech_token"][0].long().numpy()
    checkpoint.voices["zero_shot"] = StoredVoice(
        "zero_shot",
        LMPrompt(
            tuple(golden.array(3, "frontend", "zero_shot.prompt_text")[0].tolist()),
            tuple(tokens.tolist()),
        ),
        acoustic_prompt(
            tokens,
            arrays["zero_shot.prompt_speech_feat"][0].numpy(),
            arrays["embedding"][0].numpy(),
        ),
        arrays["embedding"][0].numpy(),
    )
    stages = load_stages(checkpoint, NoWatermark(), max_sessions=4)
    # Random weights never say that the text is spoken: the greatest length ends every segment.
    stages = replace(stages, length_ratios=(2.0, 3.0))
    settings = SessionSettings(text_queue_characters=200)
    return CosyVoiceEngine(checkpoint, stages, name="tiny", settings=settings)


async def speak(
    engine: CosyVoiceEngine, pieces: Sequence[str], **request: object
) -> tuple[np.ndarray, list[SpeechEvent]]:
    """All samples and events of a turn whose text comes in pieces."""
    session = await engine.open_session(SpeechRequest(**{"voice": "zero_shot", **request}))  # type: ignore[arg-type]

    async def push() -> None:
        for piece in pieces:
            await session.push_text(piece)
        await session.end_text()

    pushing = asyncio.create_task(push())
    events = [event async for event in session.events()]
    await pushing
    audio = [event.audio.samples for event in events if isinstance(event, SpeechAudio)]
    return np.concatenate([np.zeros(0, np.float32), *audio]), events


def finished(events: Sequence[SpeechEvent]) -> SpeechFinished:
    last = events[-1]
    assert isinstance(last, SpeechFinished)
    return last


async def test_samples_are_960_for_each_token_and_the_text_is_all_reported(
    engine: CosyVoiceEngine,
) -> None:
    samples, events = await speak(engine, [TEXT], seed=3)
    end = finished(events)
    assert end.samples == len(samples) == SAMPLES_A_TOKEN * end.speech_tokens > 0
    progress = [event for event in events if isinstance(event, SpeechProgress)]
    assert progress[-1].characters == len(TEXT)
    assert progress[-1].end_s <= len(samples) / 24000 + 1e-6


@pytest.mark.parametrize("cut", [1, 3, 10])
async def test_however_the_text_is_cut_the_same_is_spoken(
    engine: CosyVoiceEngine, cut: int
) -> None:
    whole, _ = await speak(engine, [TEXT], seed=3, first_hop=8, max_hop=25)
    pieces = [TEXT[i : i + cut] for i in range(0, len(TEXT), cut)]
    cut_up, _ = await speak(engine, pieces, seed=3, first_hop=8, max_hop=25)
    assert len(cut_up) == len(whole)


@pytest.mark.parametrize(("first_hop", "max_hop"), [(5, 5), (8, 25), (25, 100)])
async def test_the_hops_decide_when_and_not_how_much_is_spoken(
    engine: CosyVoiceEngine, first_hop: int, max_hop: int
) -> None:
    samples, events = await speak(engine, [TEXT], seed=5, first_hop=first_hop, max_hop=max_hop)
    reference, _ = await speak(engine, [TEXT], seed=5)
    assert len(samples) == len(reference)
    first = next(event for event in events if isinstance(event, SpeechAudio))
    # Two frames a token, of which the vocoder holds back up to eight.
    assert 480 * (2 * first_hop - 8) <= len(first.audio) <= 480 * 2 * first_hop


@pytest.mark.parametrize("text", ["", " ", "...", "🙂 !!", "**"])
async def test_nothing_speakable_is_a_defined_end_without_model_work(
    engine: CosyVoiceEngine, text: str
) -> None:
    samples, events = await speak(engine, [text])
    assert len(samples) == 0
    assert events == [SpeechFinished(FinishReason.EMPTY, 0, 0)]


async def test_speech_begins_before_the_text_ends(engine: CosyVoiceEngine) -> None:
    session = await engine.open_session(SpeechRequest("tiny_speaker", seed=1))
    await session.push_text(TEXT[:40])
    events = session.events()
    first = await asyncio.wait_for(anext(events), 20)
    assert isinstance(first, SpeechAudio | SpeechProgress)
    await session.cancel()


async def test_a_flush_speaks_all_there_is_and_the_turn_goes_on(engine: CosyVoiceEngine) -> None:
    session = await engine.open_session(SpeechRequest("tiny_speaker", seed=1))
    events = session.events()
    await session.push_text("One two three")
    await session.flush()
    characters = 0
    while characters < len("One two three"):
        event = await asyncio.wait_for(anext(events), 20)
        characters = event.characters if isinstance(event, SpeechProgress) else characters
    await session.push_text(" four five six.")
    await session.end_text()
    rest = [event async for event in events]
    assert isinstance(rest[-1], SpeechFinished)
    assert rest[-1].samples == SAMPLES_A_TOKEN * rest[-1].speech_tokens
    assert any(isinstance(event, SpeechProgress) and "six" in event.text for event in rest)


async def test_text_that_pauses_leaves_no_word_half_spoken(engine: CosyVoiceEngine) -> None:
    session = await engine.open_session(SpeechRequest("tiny_speaker", seed=1))
    events = session.events()
    sentence = "This is the first sentence. "
    await session.push_text(sentence + "And")
    characters = 0
    while characters < len(sentence) - 1:
        event = await asyncio.wait_for(anext(events), 20)
        if isinstance(event, SpeechProgress):
            characters = event.characters
    waiting = asyncio.ensure_future(anext(events))
    event = await asyncio.wait_for(waiting, 20)
    assert isinstance(event, SpeechAudio)
    await session.push_text(" here is more.")
    await session.end_text()
    end = finished([event async for event in events])
    assert end.samples == SAMPLES_A_TOKEN * end.speech_tokens


@pytest.mark.parametrize("after", range(6))
async def test_cancel_after_any_event_frees_everything(engine: CosyVoiceEngine, after: int) -> None:
    session = await engine.open_session(SpeechRequest("zero_shot", seed=2))
    await session.push_text(TEXT)
    events = session.events()
    for _ in range(after):
        await anext(events)
    await session.cancel()
    rest = [event async for event in events]
    assert [finished(rest).reason] == [FinishReason.CANCELLED]
    assert len(rest) == 1
    assert engine.busy == 0


async def test_cancel_while_a_stage_works(engine: CosyVoiceEngine) -> None:
    session = await engine.open_session(SpeechRequest("zero_shot", seed=2))
    await session.push_text(TEXT)
    seen: list[SpeechEvent] = []

    async def read() -> None:
        async for event in session.events():
            seen.append(event)

    reading = asyncio.create_task(read())
    await asyncio.sleep(0.05)
    await session.cancel()
    await asyncio.wait_for(reading, 5)
    assert finished(seen).reason is FinishReason.CANCELLED
    assert engine.busy == 0


async def test_a_full_text_queue_holds_its_writer_and_cancel_lets_it_go(
    engine: CosyVoiceEngine,
) -> None:
    session = await engine.open_session(SpeechRequest("zero_shot"))
    writer = asyncio.create_task(session.push_text("word " * 200))
    events = session.events()
    await anext(events)
    assert not writer.done()
    await session.cancel()
    await asyncio.wait_for(writer, 5)
    assert engine.busy == 0


async def test_cancel_lets_a_writer_go_whom_nobody_listened_to(engine: CosyVoiceEngine) -> None:
    session = await engine.open_session(SpeechRequest("zero_shot"))
    writer = asyncio.create_task(session.push_text("word " * 200))
    await asyncio.sleep(0)
    await session.cancel()
    await asyncio.wait_for(writer, 5)


async def test_sessions_at_once_say_what_each_says_alone(engine: CosyVoiceEngine) -> None:
    texts = ["Hello there my friend.", "A ship sails on the sea.", "We walk in the park today."]
    alone = [(await speak(engine, [text], seed=9))[0] for text in texts]
    together = await asyncio.gather(*(speak(engine, [text], seed=9) for text in texts))
    for one, (other, _) in zip(alone, together, strict=True):
        assert len(one) == len(other)
        # Later hops are cut by the clock, so only the first is the same to the sample.
        first = 480 * (2 * 8 - 8)
        assert np.abs(one[:first] - other[:first]).max() < 5e-3


class ListeningLM:
    """Passes requests on and writes down every speech token."""

    def __init__(self, lm: SpeechLM) -> None:
        self._lm = lm
        self.requests: list[list[int]] = []

    def generate(self, request: SpeechLMRequest) -> Generation:
        tokens: list[int] = []
        self.requests.append(tokens)
        generation = self._lm.generate(request)
        following = generation.__anext__

        class Heard:
            finish_reason = property(lambda _: generation.finish_reason)
            cached_ids = property(lambda _: generation.cached_ids)

            def __aiter__(self) -> Heard:
                return self

            async def __anext__(self) -> int:
                tokens.append(await following())
                return tokens[-1]

            async def aclose(self) -> None:
                await generation.aclose()

        return Heard()  # type: ignore[return-value]

    async def close(self) -> None:
        await self._lm.close()


async def test_a_cut_between_segments_cannot_be_heard(engine: CosyVoiceEngine) -> None:
    lm = ListeningLM(engine._stages.lm)
    voice, _ = engine._voices.get("zero_shot")
    prompt = engine._prompts.fit(voice, None, None).prompt
    settings = replace(
        engine._settings,
        hops=HopSettings(first_hop=22, max_hop=25, growth=4.0, margin_s=0.0),
        segments=SegmentLimits(2, 3, 3),
    )
    stages = replace(engine._stages, lm=lm)  # type: ignore[arg-type]
    session = CosyVoiceSession(stages, SessionVoice(prompt, voice.acoustic), settings, seed=4)
    await session.push_text("One two three four five six seven eight nine ten.")
    await session.end_text()
    audio = [e.audio.samples async for e in session.events() if isinstance(e, SpeechAudio)]
    assert len(lm.requests) >= 3
    stream = await engine._stages.acoustic.open(voice.acoustic, settings.acoustic)
    tokens = [token for request in lm.requests for token in request]
    whole = await stream.speak(tokens, final=True)
    stream.close()
    # The acoustic state runs on: what was cut for the LM is one stream of tokens for the flow.
    assert len(whole.samples) == sum(map(len, audio))
    assert np.abs(np.concatenate(audio) - whole.samples).max() < 5e-3


async def test_requests_the_engine_cannot_do_are_refused_by_name(engine: CosyVoiceEngine) -> None:
    for request, error, field in [
        (SpeechRequest("nobody"), UnknownVoice, "voice"),
        (SpeechRequest("zero_shot", speed=2.5), UnsupportedFeature, "speed"),
        (SpeechRequest("zero_shot", instruct="s" * 501), InvalidRequest, "instruct"),
        (SpeechRequest("zero_shot", instruct="a\x00b"), InvalidRequest, "instruct"),
        (SpeechRequest("zero_shot", language="fi"), UnsupportedFeature, "language"),
        (SpeechRequest("zero_shot", first_hop=4), InvalidRequest, "first_hop"),
        (SpeechRequest("zero_shot", max_hop=100_000), InvalidRequest, "max_hop"),
        (SpeechRequest("zero_shot", first_hop=26), InvalidRequest, "first_hop"),
        (SpeechRequest("zero_shot", max_hop=7), InvalidRequest, "max_hop"),
        (SpeechRequest("zero_shot", hop_growth=5.0), InvalidRequest, "hop_growth"),
    ]:
        with pytest.raises(error) as refused:
            await engine.open_session(request)
        assert refused.value.field == field


async def test_text_that_cannot_be_is_refused_and_the_turn_goes_on(
    engine: CosyVoiceEngine,
) -> None:
    session = await engine.open_session(SpeechRequest("zero_shot", seed=1))
    for text in ("a\x00b", "\ud800"):
        with pytest.raises(InvalidRequest) as refused:
            await session.push_text(text)
        assert refused.value.field == "text"
    await session.push_text("Still here.")
    await session.end_text()
    assert finished([event async for event in session.events()]).samples > 0


def test_flow_prompts_meet_the_chunk_grid() -> None:
    for count in (10, 27, 28, 52, 53, 78, 101):
        prompt = acoustic_prompt(
            np.zeros(count, np.int64),
            np.zeros((2 * count, 80), np.float32),
            np.ones(192, np.float32),
        )
        cut = on_the_grid(prompt)
        assert len(cut.mel) == 2 * len(cut.tokens)
        assert len(cut.tokens) == (count if count < 28 else (count - 3) // 25 * 25 + 3)
