"""The speech LM of CosyVoice 1: equal to the golden arrays, and well behaved as a backend."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest
import torch

from antiphon.engine.checkpoint import open_checkpoint
from antiphon.engine.checkpoint.tokenizer import TextTokenizer
from antiphon.engine.checkpoint.whisper_tokenizer import load_whisper_tokenizer
from antiphon.engine.errors import CheckpointError, InvalidRequest, Overloaded, SynthesisFailed
from antiphon.engine.interface import FinishReason
from antiphon.engine.speech_lm.request import Sampling, SpeechLMRequest
from antiphon.engine.speech_lm.text_speech_backend import TorchTextSpeechLM
from antiphon.engine.speech_lm.text_speech_lm import SequenceMemory, TextSpeechLM
from antiphon.engine.voice.voice import LMPrompt
from tests import golden

GREEDY = Sampling(0.8, 25, 10, 0.1, greedy=True)
HELLO = "Hello there, this is a small test of the engine."
MEETING = "She said that the meeting should start at nine and"
TEXTS = {
    "plain": HELLO,
    "sft": HELLO,
    "zero_shot": f"{MEETING}.",
    "min_len": "and the river keeps flowing towards the sea, with care. "
    f"{MEETING} that everyone would bring their own notes.",
    "long": f"{MEETING} that everyone would bring their own notes, while the people are walking in "
    "the street and the river keeps flowing towards the sea, with care.",
}
LOGITS = {"plain": 8, "sft": 2, "zero_shot": 8, "min_len": 2, "long": 2}


@cache
def tokenizer() -> TextTokenizer:
    try:
        return load_whisper_tokenizer()
    except CheckpointError:
        pytest.skip("openai-whisper is not installed")


@cache
def tiny() -> TextSpeechLM:
    checkpoint = open_checkpoint(golden.model_dir(1))
    model = TextSpeechLM(checkpoint.text_speech_lm_config)
    model.load_state_dict(checkpoint.lm_state_dict(), strict=True)
    return model.eval().requires_grad_(False)


@dataclass(frozen=True)
class Case:
    prompt: LMPrompt
    text: tuple[int, ...]


def case(name: str) -> Case:
    prompt = LMPrompt()
    if name == "zero_shot":
        prompt = LMPrompt(
            tuple(golden.array(1, "frontend", "zero_shot.prompt_text")[0].tolist()),
            tuple(golden.array(1, "frontend", "zero_shot.speech_token")[0].tolist()),
            tuple(golden.array(1, "frontend", "embedding")[0].tolist()),
        )
    elif name == "sft":
        stored = torch.load(golden.model_dir(1) / "spk2info.pt", weights_only=True)
        prompt = LMPrompt(speaker=tuple(stored["tiny_speaker"]["embedding"][0].tolist()))
    if TEXTS[name] == HELLO:
        return Case(prompt, tuple(golden.array(1, "frontend", "zero_shot.text")[0].tolist()))
    return Case(prompt, tuple(tokenizer().encode(TEXTS[name])))


@pytest.mark.parametrize("name", list(TEXTS))
def test_inputs_and_logits_are_the_reference_ones(name: str) -> None:
    model, given = tiny(), case(name)
    inputs = model.prefix(given.prompt, given.text)
    golden.assert_close(inputs, 1, "lm", f"{name}.prefill")
    memory = SequenceMemory(2)
    rows = [model.start(inputs, memory)[0]]
    for token in golden.array(1, "lm", f"{name}.tokens")[: LOGITS[name] - 1].tolist():
        rows.append(model.step(model.embed_speech(token), memory)[0])
    logp = torch.stack(rows).log_softmax(-1)
    golden.assert_close(logp, 1, "lm", f"{name}.logp{LOGITS[name]}")


def test_encoded_text_and_its_ids_are_the_reference_ones() -> None:
    text = tuple(golden.array(1, "frontend", "zero_shot.text")[0].tolist())
    golden.assert_close(tiny().encode_text(text), 1, "lm", "text_encoder_out")
    assert tuple(tokenizer().encode(HELLO)) == text


def test_steps_equal_one_call_over_the_whole() -> None:
    model = tiny()
    given = case("plain")
    speech = [5, 900, 31, 4000, 17]
    prompt = replace(given.prompt, speech_ids=tuple(speech))
    whole = model.start(model.prefix(prompt, given.text), SequenceMemory(2))
    memory = SequenceMemory(2)
    logits = model.start(model.prefix(given.prompt, given.text), memory)
    for token in speech:
        logits = model.step(model.embed_speech(token), memory)
    torch.testing.assert_close(logits, whole, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", list(TEXTS))
async def test_generated_ids_are_the_reference_ones(name: str) -> None:
    backend = TorchTextSpeechLM(tiny())
    try:
        given = case(name)
        generation = backend.generate(SpeechLMRequest(given.prompt, given.text, GREEDY))
        tokens = [token async for token in generation]
        assert tokens == golden.array(1, "lm", f"{name}.tokens").tolist()
        assert generation.finish_reason is FinishReason.STOP
        assert backend.load_now == 0
    finally:
        await backend.close()


async def test_text_in_pieces_is_gathered_and_requests_share_the_worker() -> None:
    backend = TorchTextSpeechLM(tiny(), slots=2)

    async def pieces(text: tuple[int, ...]) -> AsyncIterator[tuple[int, ...]]:
        for token in text:
            await asyncio.sleep(0)
            yield (token,)

    async def run(name: str) -> list[int]:
        given = case(name)
        request = SpeechLMRequest(given.prompt, pieces(given.text), GREEDY)
        return [token async for token in backend.generate(request)]

    try:
        names = ["plain", "sft", "zero_shot"]
        for name, tokens in zip(names, await asyncio.gather(*map(run, names)), strict=True):
            assert tokens == golden.array(1, "lm", f"{name}.tokens").tolist()
    finally:
        await backend.close()


async def test_a_request_that_waits_for_text_holds_up_nobody() -> None:
    backend = TorchTextSpeechLM(tiny(), slots=1)
    given, gate = case("plain"), asyncio.Event()

    async def late() -> AsyncIterator[tuple[int, ...]]:
        yield given.text[:2]
        await gate.wait()
        yield given.text[2:]

    async def run(text: object) -> list[int]:
        request = SpeechLMRequest(given.prompt, text, GREEDY)  # type: ignore[arg-type]
        return [token async for token in backend.generate(request)]

    try:
        waiting = asyncio.ensure_future(run(late()))
        other = await asyncio.wait_for(run(given.text), 20)
        assert not waiting.done()
        gate.set()
        assert await asyncio.wait_for(waiting, 20) == other
    finally:
        await backend.close()


async def test_streamed_text_is_bounded() -> None:
    backend = TorchTextSpeechLM(tiny(), positions=64)

    async def endless() -> AsyncIterator[tuple[int, ...]]:
        while True:
            yield (1,) * 10

    try:
        with pytest.raises(InvalidRequest) as caught:
            await asyncio.wait_for(
                anext(backend.generate(SpeechLMRequest(LMPrompt(), endless(), GREEDY))), 20
            )
        assert caught.value.limit == 64
        assert backend.load_now == 0
    finally:
        await backend.close()


async def test_seeds_decide_and_the_longest_speech_is_bounded() -> None:
    backend = TorchTextSpeechLM(tiny())
    try:

        async def run(seed: int, ratio: float = 20.0) -> tuple[list[int], FinishReason | None]:
            sampling = Sampling(0.8, 25, 10, 0.1, seed=seed)
            request = SpeechLMRequest(LMPrompt(), case("plain").text, sampling, 2.0, ratio)
            generation = backend.generate(request)
            return [token async for token in generation], generation.finish_reason

        assert await run(1) == await run(1)
        assert (await run(1))[0] != (await run(2))[0]
        tokens, reason = await run(1, 2.0)
        assert len(tokens) == 24
        assert reason is FinishReason.LENGTH
        assert backend.load_now == 0
    finally:
        await backend.close()


async def test_cancel_frees_the_place_and_too_many_are_refused() -> None:
    backend = TorchTextSpeechLM(tiny(), slots=1, max_waiting=1)
    request = SpeechLMRequest(LMPrompt(), case("plain").text, GREEDY)
    try:
        running, waiting = backend.generate(request), backend.generate(request)
        assert await anext(running) >= 0
        queued = asyncio.ensure_future(anext(waiting))
        await asyncio.sleep(0.01)
        with pytest.raises(Overloaded):
            await anext(backend.generate(request))
        await running.aclose()
        await running.aclose()
        assert running.finish_reason is FinishReason.CANCELLED
        assert await queued == golden.array(1, "lm", "plain.tokens")[0]
        await waiting.aclose()
        assert backend.load_now == 0
        with pytest.raises(StopAsyncIteration):
            await anext(running)
    finally:
        await backend.close()
    with pytest.raises(SynthesisFailed):
        await anext(backend.generate(request))


async def test_a_fault_in_the_model_ends_its_request_and_not_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Upstream's thread dies and its caller waits for ever.
    backend = TorchTextSpeechLM(tiny())
    request = SpeechLMRequest(LMPrompt(), case("plain").text, GREEDY)
    try:
        with monkeypatch.context() as broken:
            broken.setattr(TextSpeechLM, "step", lambda *_: torch.full((1, 4097), torch.nan))
            with pytest.raises(SynthesisFailed, match="finite"):
                _ = [token async for token in backend.generate(request)]
            broken.setattr(TextSpeechLM, "step", lambda *_: 1 / 0)
            with pytest.raises(SynthesisFailed, match="ZeroDivisionError"):
                _ = [token async for token in backend.generate(request)]
        tokens = [token async for token in backend.generate(request)]
        assert tokens == golden.array(1, "lm", "plain.tokens").tolist()
        assert backend.load_now == 0
    finally:
        await backend.close()


@pytest.mark.parametrize(
    ("prompt", "text", "field"),
    [
        (LMPrompt(), (51866,), "text"),
        (LMPrompt(text_ids=(-1,)), (1,), "prompt.text_ids"),
        (LMPrompt(speech_ids=(4096,)), (1,), "prompt.speech_ids"),
        (LMPrompt(speaker=(0.0,) * 80), (1,), "prompt.speaker"),
        (LMPrompt(), (1,) * 5000, "text"),
    ],
)
async def test_requests_that_cannot_be_are_refused(
    prompt: LMPrompt, text: tuple[int, ...], field: str
) -> None:
    backend = TorchTextSpeechLM(tiny())
    try:
        with pytest.raises(InvalidRequest) as caught:
            await anext(backend.generate(SpeechLMRequest(prompt, text, GREEDY)))
        assert caught.value.field == field
        assert backend.load_now == 0
    finally:
        await backend.close()


def test_full_size_keys_equal_the_manifest() -> None:
    manifest = json.loads(golden.golden_path("manifest/cosyvoice1.json").read_text())
    expected = {k: tuple(v["shape"]) for k, v in manifest["modules"]["llm"]["keys"].items()}
    small = tiny().config
    full = replace(
        small,
        llm_input_size=1024,
        llm_output_size=1024,
        text_encoder=replace(
            small.text_encoder,
            input_size=512,
            output_size=1024,
            attention_heads=16,
            linear_units=4096,
            num_blocks=6,
        ),
        llm=replace(
            small.llm,
            input_size=1024,
            output_size=1024,
            attention_heads=16,
            linear_units=4096,
            num_blocks=14,
        ),
    )
    with torch.device("meta"):
        model = TextSpeechLM(full)
    assert {k: tuple(v.shape) for k, v in model.state_dict().items()} == expected


def test_tokenizer_gives_the_reference_ids() -> None:
    known = json.loads(golden.golden_path("text/text_v1.json").read_text())
    encode = tokenizer().encode
    assert tokenizer().size == known["n_vocab"]
    for token, number in known["special_ids"].items():
        assert tokenizer().token_id(token) == number
    for text, ids in known["special_ids_of"].items():
        assert encode(text) == ids
    for entry in known["cases"]:
        assert encode(entry["input"]) == entry["ids_of_input"]
        for text, ids in zip(entry["split"], entry["ids_of_split"], strict=True):
            assert encode(text) == ids


def test_damaged_tokenizer_files_are_refused(tmp_path: Path) -> None:
    for content in ("", "YQ== 0\n", "YQ== zero\n", "\xff", "????? 0\n"):
        path = tmp_path / "multilingual.tiktoken"
        path.write_text(content)
        with pytest.raises(CheckpointError):
            load_whisper_tokenizer(path)
