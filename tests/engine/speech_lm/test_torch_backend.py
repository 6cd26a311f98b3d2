"""The torch backend as sessions see it: batching, seeds, back-pressure, cancel, faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import torch

from antiphon.engine.errors import InvalidRequest, Overloaded, SynthesisFailed
from antiphon.engine.interface import FinishReason
from antiphon.engine.speech_lm import generation as generation_module
from antiphon.engine.speech_lm import torch_backend
from antiphon.engine.speech_lm.generation import TorchGeneration
from antiphon.engine.speech_lm.request import Sampling, SpeechLMRequest
from antiphon.engine.speech_lm.torch_backend import TorchSpeechLM
from antiphon.engine.voice.voice import LMPrompt
from tests.engine.speech_lm.cases import HELLO, LONG, cases, checkpoint, stream

RAS = Sampling(0.8, 25, 10, 0.1, seed=11)


@asynccontextmanager
async def running(**options: Any) -> AsyncIterator[TorchSpeechLM]:
    lm = TorchSpeechLM.load(checkpoint(3), **{"slots": 4, "positions": 512, **options})
    try:
        yield lm
    finally:
        await lm.close()


def bare() -> LMPrompt:
    return LMPrompt((checkpoint(3).tokenizer.end_of_prompt,))


def ids(text: str) -> tuple[int, ...]:
    return tuple(checkpoint(3).tokenizer.encode(text))


def seeded(seed: int) -> Sampling:
    return Sampling(0.8, 25, 10, 0.1, seed=seed)


async def spoken(generation: TorchGeneration) -> list[int]:
    return [token async for token in generation]


async def test_a_seed_gives_the_same_speech_alone_and_in_company() -> None:
    def request(seed: int) -> SpeechLMRequest:
        text = ids(HELLO)
        pieces = [text[:4], text[4:5], text[5:]]
        source = stream(pieces) if seed % 2 else text
        prompt = bare() if seed % 3 else cases(3)["zero_shot"].prompt
        return SpeechLMRequest(prompt, source, seeded(seed), max_ratio=3)

    async with running() as lm:
        alone = [await spoken(lm.generate(request(seed))) for seed in range(9)]
        together = await asyncio.gather(*(spoken(lm.generate(request(s))) for s in range(9)))
    assert alone == list(together)
    assert all(alone)
    assert len({tuple(tokens) for tokens in alone}) == len(alone)


async def test_normal_mode_bans_the_right_end_and_bounds_the_length() -> None:
    """The golden run `bistream_prompt_error` raises upstream; here it is spoken."""
    case = cases(3)["bistream_prompt_error"]
    async with running() as lm:
        generation = lm.generate(case.request())
        tokens = await spoken(generation)
    assert generation.finish_reason in (
        FinishReason.STOP, FinishReason.LENGTH, FinishReason.TOKEN_LOOP,
    )  # fmt: skip
    assert len(tokens) >= 2 * len(case.text) or generation.finish_reason is FinishReason.TOKEN_LOOP
    assert max(tokens) < checkpoint(3).lm_config.speech_token_size


async def test_late_text_stalls_only_its_own_session() -> None:
    gate = asyncio.Event()

    async def late() -> AsyncIterator[tuple[int, ...]]:
        yield ids(HELLO)[:6]
        await gate.wait()
        yield ids(HELLO)[6:]

    async with running() as lm:
        stalled = lm.generate(SpeechLMRequest(bare(), late(), seeded(1), max_ratio=4))
        first = asyncio.ensure_future(spoken(stalled))
        other = await asyncio.wait_for(
            spoken(lm.generate(SpeechLMRequest(bare(), ids(HELLO), seeded(2), max_ratio=4))), 60
        )
        assert other
        assert not first.done()
        gate.set()
        early = SpeechLMRequest(bare(), stream([ids(HELLO)]), seeded(1), max_ratio=4)
        assert await first == await spoken(lm.generate(early))


async def test_cancel_frees_the_place_at_once_and_the_next_request_starts() -> None:
    async with running(slots=1, max_waiting=0) as lm:
        for _ in range(20):
            generation = lm.generate(SpeechLMRequest(bare(), ids(LONG), RAS))
            await anext(generation)
            await generation.aclose()
            assert lm.load_now == 0
            assert generation.finish_reason is FinishReason.CANCELLED
            assert [token async for token in generation] == []
        assert await spoken(lm.generate(SpeechLMRequest(bare(), ids("Hi."), RAS, max_ratio=4)))


async def test_a_full_house_refuses_with_a_time_to_come_back() -> None:
    async with running(slots=1, max_waiting=1) as lm:
        held = [lm.generate(SpeechLMRequest(bare(), ids(LONG), RAS)) for _ in range(2)]
        first = asyncio.ensure_future(anext(held[0]))
        second = asyncio.ensure_future(anext(held[1]))
        await first
        with pytest.raises(Overloaded) as refused:
            await anext(lm.generate(SpeechLMRequest(bare(), ids(HELLO), RAS)))
        assert refused.value.retry_after_s > 0
        await held[0].aclose()
        assert await asyncio.wait_for(second, 30) >= 0
        await held[1].aclose()


async def test_a_reader_that_stops_pauses_its_own_speech(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_backend, "MAX_AHEAD_TOKENS", 5)
    async with running() as lm:
        request = SpeechLMRequest(bare(), ids(HELLO), seeded(3), max_ratio=4)
        slow = lm.generate(request)
        await anext(slow)
        other = await spoken(lm.generate(request))
        assert slow.buffered <= 6
        rest = [token async for token in slow]
    assert rest == other[1:]


async def test_a_huge_text_waits_at_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation_module, "MAX_PENDING_TEXT", 20)
    asked = 0

    async def endless() -> AsyncIterator[tuple[int, ...]]:
        nonlocal asked
        while True:
            asked += 1
            yield (5, 6, 7)

    async with running() as lm:
        generation = lm.generate(SpeechLMRequest(bare(), endless(), seeded(4)))
        for _ in range(30):
            await anext(generation)
        assert asked <= 30 / 15 * 5 + 20
        await generation.aclose()


async def test_more_than_a_slot_holds_is_refused_or_ends_as_length() -> None:
    async with running(positions=64) as lm:
        with pytest.raises(InvalidRequest) as refused:
            await anext(lm.generate(SpeechLMRequest(bare(), ids(LONG) * 3, RAS)))
        assert (refused.value.field, refused.value.limit) == ("text", 64)
        generation = lm.generate(SpeechLMRequest(bare(), stream([ids(LONG) * 3]), RAS))
        assert await spoken(generation)
        assert generation.finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize("text", [(896,), (-1,)])
async def test_ids_out_of_range_are_refused_whole_or_streamed(text: tuple[int, ...]) -> None:
    async with running() as lm:
        for source in (text, stream([text])):
            with pytest.raises(InvalidRequest) as refused:
                await anext(lm.generate(SpeechLMRequest(bare(), source, RAS)))
            assert refused.value.field == "text"
        assert lm.load_now == 0


async def test_a_source_that_fails_ends_its_session_alone() -> None:
    async def broken() -> AsyncIterator[tuple[int, ...]]:
        yield (5,)
        raise OSError("the line went dead")

    async with running() as lm:
        with pytest.raises(SynthesisFailed, match="text source"):
            await spoken(lm.generate(SpeechLMRequest(bare(), broken(), RAS)))
        assert await spoken(lm.generate(SpeechLMRequest(bare(), ids("Hi."), RAS, max_ratio=4)))


async def test_a_value_that_is_not_finite_ends_in_an_error() -> None:
    opened = checkpoint(3)
    state = opened.lm_state_dict()
    state["llm.model.model.norm.weight"] = torch.full((48,), torch.nan)
    model = torch_backend.Qwen2SpeechLM(opened.lm_config, state, positions=128)
    builder = torch_backend.SequenceBuilder(model.vocabulary, opened.tokenizer.end_of_prompt)
    lm = TorchSpeechLM(model, builder, slots=1, positions=128, max_waiting=0)
    try:
        with pytest.raises(SynthesisFailed, match="non-finite"):
            await spoken(lm.generate(SpeechLMRequest(bare(), ids(HELLO), RAS)))
    finally:
        await lm.close()


async def test_closing_ends_what_runs_with_an_error() -> None:
    lm = TorchSpeechLM.load(checkpoint(3), slots=1, positions=512)
    generation = lm.generate(SpeechLMRequest(bare(), ids(LONG), RAS))
    await anext(generation)
    await lm.close()
    with pytest.raises(SynthesisFailed):
        await spoken(generation)
    with pytest.raises(SynthesisFailed):
        await anext(lm.generate(SpeechLMRequest(bare(), ids(HELLO), RAS)))
    await generation.aclose()
    await lm.close()


async def test_empty_text_does_no_work() -> None:
    async with running() as lm:
        for source in ((), stream([])):
            generation = lm.generate(SpeechLMRequest(bare(), source, RAS))
            assert await spoken(generation) == []
            assert generation.finish_reason is FinishReason.EMPTY
