from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise

import numpy as np
import pytest
import pytest_asyncio

from antiphon.engine.errors import (
    InvalidRequest,
    SynthesisFailed,
    UnknownVoice,
    UnsupportedFeature,
)
from antiphon.engine.interface import (
    FinishReason,
    SpeechAudio,
    SpeechEvent,
    SpeechFinished,
    SpeechProgress,
    SpeechRequest,
)
from antiphon.engine.preset import PresetEngine
from antiphon.engine.preset.session import PresetSession
from antiphon.engine.watermark.none import NoWatermark

TEXT = "Sure, I can help you with that. The bill is $5.50, due at 7:30 pm!"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine() -> AsyncIterator[PresetEngine]:
    loaded = PresetEngine(NoWatermark())
    await loaded.warm_up()
    yield loaded
    await loaded.close()


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def spoken(
    engine: PresetEngine, pieces: Sequence[str], request: SpeechRequest | None = None
) -> list[SpeechEvent]:
    session = await engine.open_session(request or SpeechRequest("heart", seed=1))

    async def write() -> None:
        for piece in pieces:
            await session.push_text(piece)
        await session.end_text()

    async with asyncio.TaskGroup() as group:
        group.create_task(write())
        return [event async for event in session.events()]


def samples_of(events: Sequence[SpeechEvent]) -> np.ndarray:
    return np.concatenate([e.audio.samples for e in events if isinstance(e, SpeechAudio)])


def finish_of(events: Sequence[SpeechEvent]) -> SpeechFinished:
    last = events[-1]
    assert isinstance(last, SpeechFinished)
    return last


async def test_samples_are_counted_and_progress_reaches_the_end(engine: PresetEngine) -> None:
    events = await spoken(engine, [TEXT])
    assert finish_of(events) == SpeechFinished(FinishReason.STOP, len(samples_of(events)))
    progress = [e for e in events if isinstance(e, SpeechProgress)]
    characters = [p.characters for p in progress]
    assert characters == sorted(characters)
    assert characters[-1] == len(TEXT)
    times = [t for p in progress for t in (p.start_s, p.end_s)]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(len(samples_of(events)) / 24000)


async def test_progress_comes_after_the_audio_it_speaks_of(engine: PresetEngine) -> None:
    heard = 0
    for event in await spoken(engine, [TEXT]):
        if isinstance(event, SpeechAudio):
            heard += len(event.audio)
        elif isinstance(event, SpeechProgress):
            assert event.end_s * 24000 <= heard + 0.5


@pytest.mark.parametrize("size", [1, 2, 5, 11])
async def test_streamed_equals_whole(engine: PresetEngine, size: int) -> None:
    pieces = [TEXT[i : i + size] for i in range(0, len(TEXT), size)]
    streamed, whole = await spoken(engine, pieces), await spoken(engine, [TEXT])
    np.testing.assert_array_equal(samples_of(streamed), samples_of(whole))


async def test_a_clause_is_spoken_before_the_next_one_is_written(engine: PresetEngine) -> None:
    session = await engine.open_session(SpeechRequest("heart", seed=1))
    await session.push_text("Certainly, the")
    events = session.events()
    first = await asyncio.wait_for(anext(events), 5)
    assert isinstance(first, SpeechAudio)
    second = await anext(events)
    assert isinstance(second, SpeechProgress)
    assert second.text == "Certainly,"
    await session.cancel()


async def test_flush_speaks_without_waiting_for_more(engine: PresetEngine) -> None:
    session = await engine.open_session(SpeechRequest("heart", seed=1))
    await session.push_text("so we are done")
    await session.flush()
    events = session.events()
    heard = []
    while not (heard and heard[-1].characters == 14):
        event = await asyncio.wait_for(anext(events), 5)
        if isinstance(event, SpeechProgress):
            heard.append(event)
    await session.push_text(" and more.")
    await session.end_text()
    rest = [event async for event in events]
    assert finish_of(rest).reason is FinishReason.STOP


async def test_joins_have_no_clicks(engine: PresetEngine) -> None:
    events = await spoken(engine, [TEXT])
    samples = samples_of(events)
    # A click is a second difference that speech itself does not have.
    bend = np.diff(samples.astype(np.float64), 2) ** 2
    words = [e for e in events if isinstance(e, SpeechProgress)]
    # Clauses meet in silence, at zero.
    for before, after in pairwise(words):
        if before.text[-1] in ",.":
            border = samples[round(before.end_s * 24000) - 2 : round(after.start_s * 24000) + 2]
            assert len(border) > 2000
            assert np.abs(border).max() < 1e-3
    # Words are cut where the model said one word ends: nothing was changed there.
    joins = np.cumsum([len(e.audio) for e in events if isinstance(e, SpeechAudio)])[:-1]
    at_joins = np.mean([bend[j - 3 : j + 2].mean() for j in joins])
    assert at_joins < 3 * bend.mean()


async def test_seeds_decide(engine: PresetEngine) -> None:
    one = samples_of(await spoken(engine, ["Hello."], SpeechRequest("heart", seed=1)))
    again = samples_of(await spoken(engine, ["Hello."], SpeechRequest("heart", seed=1)))
    other = samples_of(await spoken(engine, ["Hello."], SpeechRequest("heart", seed=2)))
    np.testing.assert_array_equal(one, again)
    assert len(one) != len(other) or np.abs(one - other).max() > 0


async def test_speed_changes_the_length(engine: PresetEngine) -> None:
    slow, fast = [
        len(samples_of(await spoken(engine, [TEXT], SpeechRequest("heart", speed=s, seed=1))))
        for s in (0.5, 2.0)
    ]
    assert 2.5 < slow / fast < 5.5


@pytest.mark.parametrize("text", ["", "  \n", "…!?", "😀👍", "***"])
async def test_nothing_to_speak_is_empty(engine: PresetEngine, text: str) -> None:
    assert await spoken(engine, [text]) == [SpeechFinished(FinishReason.EMPTY, 0)]


async def test_cancel_ends_the_turn(engine: PresetEngine) -> None:
    session = await engine.open_session(SpeechRequest("heart", seed=1))
    await session.push_text(TEXT)
    events: list[SpeechEvent] = []
    async for event in session.events():
        events.append(event)
        if len(events) == 1:
            await session.cancel()
            await session.cancel()
    assert finish_of(events).reason is FinishReason.CANCELLED
    assert finish_of(events).samples == len(samples_of(events))
    await asyncio.wait_for(session.push_text("x" * 100_000), 1)  # a writer is not left waiting


async def test_cancel_reaches_a_turn_that_waits_for_text(engine: PresetEngine) -> None:
    session = await engine.open_session(SpeechRequest("heart"))

    async def read() -> list[SpeechEvent]:
        return [event async for event in session.events()]

    reader = asyncio.create_task(read())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await session.cancel()
    assert await asyncio.wait_for(reader, 2) == [SpeechFinished(FinishReason.CANCELLED, 0)]


async def test_text_waits_while_the_queue_is_full(engine: PresetEngine) -> None:
    session = await engine.open_session(SpeechRequest("heart"))
    writer = asyncio.create_task(session.push_text("word " * 2000))
    await asyncio.sleep(0)
    assert not writer.done()
    await session.cancel()  # also a turn whose events nobody has read lets go of its writer
    await asyncio.wait_for(writer, 2)


async def test_a_failure_of_the_model_is_an_error(
    engine: PresetEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from antiphon.engine.preset import model

    monkeypatch.setattr(
        model.dsp, "synth", lambda *parts: np.full(parts[0].shape[1] * 300, np.nan, np.float32)
    )
    session = await engine.open_session(SpeechRequest("heart"))
    await session.push_text("Hello.")
    await session.end_text()
    with pytest.raises(SynthesisFailed):
        async for _ in session.events():
            pass


async def test_text_with_control_characters_is_refused(engine: PresetEngine) -> None:
    session: PresetSession = await engine.open_session(SpeechRequest("heart"))
    with pytest.raises(InvalidRequest) as caught:
        await session.push_text("a\x00b")
    assert caught.value.field == "text"
    await session.cancel()


@pytest.mark.parametrize(
    ("request_", "error", "field"),
    [
        (SpeechRequest("nobody"), UnknownVoice, "voice"),
        (SpeechRequest("heart", speed=2.1), InvalidRequest, "speed"),
        (SpeechRequest("heart", speed=float("nan")), InvalidRequest, "speed"),
        (SpeechRequest("heart", seed=-1), InvalidRequest, "seed"),
        (SpeechRequest("heart", language="zh"), UnsupportedFeature, "language"),
        (SpeechRequest("heart", instruct="calm"), UnsupportedFeature, "instruct"),
        (SpeechRequest("heart", first_hop=8), UnsupportedFeature, "first_hop"),
    ],
)
async def test_what_it_cannot_do_is_refused_by_name(
    engine: PresetEngine, request_: SpeechRequest, error: type[InvalidRequest], field: str
) -> None:
    with pytest.raises(error) as caught:
        await engine.open_session(request_)
    assert caught.value.field == field


async def test_it_declares_what_it_can_do(engine: PresetEngine) -> None:
    assert [voice.name for voice in engine.voices()] == ["heart"]
    assert not engine.capabilities.speaks_before_clause_end
    assert engine.capabilities.pronunciation
    await engine.open_session(SpeechRequest("heart", language="en-GB"))
