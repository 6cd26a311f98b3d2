"""The vLLM backend, on the CPU build where that is installed. One engine serves the module."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import statistics
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import pytest_asyncio
import torch

from antiphon.engine.errors import InvalidRequest, Overloaded, SynthesisFailed
from antiphon.engine.interface import FinishReason
from antiphon.engine.speech_lm.request import Sampling, SpeechLMRequest, WarmPrompt
from antiphon.engine.speech_lm.sampling import Draw
from antiphon.engine.speech_lm.sampling import sample as draw
from antiphon.engine.speech_lm.sequences import SequenceBuilder
from antiphon.engine.speech_lm.torch_backend import TorchSpeechLM
from antiphon.engine.speech_lm.vllm_backend import (
    PROBE_TOLERANCE,
    VLLMSpeechLM,
    shareable_prefix,
)
from antiphon.engine.speech_lm.vllm_export import PROBE_FILE
from antiphon.engine.speech_lm.vllm_settings import VLLMSettings
from antiphon.engine.voice.voice import LMPrompt
from tests import golden
from tests.engine.speech_lm.cases import (
    GREEDY,
    HELLO,
    LONG,
    NAMES,
    SINGLE,
    UNEVEN,
    cases,
    checkpoint,
    cut,
    stream,
)
from tests.engine.speech_lm.test_lm_golden import mode_requests

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None, reason="vLLM is not installed (extra `vllm`)"
    ),
    pytest.mark.asyncio(loop_scope="module"),
]
VERSIONS = pytest.mark.parametrize("lm", [3, 2], indirect=True)
VERSION_3 = pytest.mark.parametrize("lm", [3], indirect=True)
VOICES: list[WarmPrompt] = []
"""What a new engine is asked to warm."""


def settings(cache: Path) -> VLLMSettings:
    return VLLMSettings(cache=cache, kv_gib=0.05, max_sequences=12, max_positions=1024)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lm(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[VLLMSpeechLM]:
    cache = tmp_path_factory.mktemp("export")
    running = VLLMSpeechLM.prepare(checkpoint(request.param), settings(cache))
    assert not running.ready
    try:
        await running.start(lambda: VOICES)
        yield running
    finally:
        await running.close()


def version_of(lm: VLLMSpeechLM) -> int:
    return 3 if lm.builder.vocabulary.config.needs_end_of_prompt else 2


def as_published(lm: VLLMSpeechLM, compat: bool) -> None:
    """Switch the sequences between ours and the published ones; the engine is the same."""
    end_of_prompt = checkpoint(version_of(lm)).tokenizer.end_of_prompt
    lm.builder = SequenceBuilder(lm.builder.vocabulary, end_of_prompt, compat=compat)


async def collect(
    lm: VLLMSpeechLM | TorchSpeechLM, request: SpeechLMRequest
) -> tuple[list[int], FinishReason | str | None]:
    generation, heard = lm.generate(request), []
    try:
        async for token in generation:
            heard.append(token)
    except SynthesisFailed as error:
        return heard, error.message
    return heard, generation.finish_reason


@VERSIONS
async def test_golden_runs(lm: VLLMSpeechLM) -> None:
    """Plain, zero-shot and bi-streamed, faults of the published sequences included."""
    as_published(lm, compat=True)
    version = version_of(lm)
    runs = [cases(version)[n] for n in NAMES[version] if cases(version)[n].script is None]
    found = await asyncio.gather(*(collect(lm, case.request()) for case in runs))
    as_published(lm, compat=False)
    for case, (heard, end) in zip(runs, found, strict=True):
        assert heard == case.expected(), case.name
        assert end == (case.error or FinishReason.STOP), case.name


@VERSIONS
async def test_golden_modes(lm: VLLMSpeechLM) -> None:
    as_published(lm, compat=True)
    version = version_of(lm)
    for mode, (text, prompt) in mode_requests(version).items():
        ids = tuple(checkpoint(version).tokenizer.encode(text))
        heard, _ = await collect(lm, SpeechLMRequest(prompt, ids, GREEDY))
        assert heard == golden.array(version, "modes", f"{mode}.tokens").tolist(), mode
    as_published(lm, compat=False)


@VERSIONS
async def test_both_backends_speak_the_same(lm: VLLMSpeechLM) -> None:
    """Our own sequences, greedy and drawn: the draws depend on seed and step alone."""
    version = version_of(lm)
    opened = checkpoint(version)
    torch_lm = TorchSpeechLM.load(opened, slots=4, positions=1024)
    text = tuple(opened.tokenizer.encode(LONG))
    zero_shot, bare = cases(version)["zero_shot"].prompt, cases(version)["plain"].prompt
    drawn = Sampling(0.8, 25, 10, 0.1, seed=5)

    def requests() -> list[SpeechLMRequest]:
        return [
            SpeechLMRequest(prompt, source, sampling, max_ratio=5)
            for sampling in (GREEDY, drawn)
            for prompt in (bare, zero_shot)
            for source in (text, stream(cut(text, UNEVEN)), stream(cut(text[:7], SINGLE)))
        ]

    try:
        ours = [await collect(torch_lm, request) for request in requests()]
    finally:
        await torch_lm.close()
    for count in (1, 4):
        every = requests()
        for at in range(0, len(every), count):
            batch = await asyncio.gather(*(collect(lm, r) for r in every[at : at + count]))
            assert list(batch) == ours[at : at + count]


def long_prompt(lm: VLLMSpeechLM) -> LMPrompt:
    """The transcript thrice, so that its own text fills as many blocks as the speech."""
    prompt = cases(3)["zero_shot"].prompt
    instruction, transcript = lm.builder.split(prompt.text_ids)
    return LMPrompt((*instruction, *transcript * 3), prompt.speech_ids)


async def cached_ids(lm: VLLMSpeechLM, voice: str | None, tenant: str | None = None) -> int:
    """Begin to speak with the long prompt; return how many of its ids were cached."""
    ids = tuple(checkpoint(3).tokenizer.encode(LONG))
    generation = lm.generate(
        SpeechLMRequest(
            long_prompt(lm), stream([ids]), GREEDY, max_ratio=2, tenant=tenant, voice=voice
        )
    )
    await anext(generation)
    await generation.aclose()
    return generation.cached_ids


@VERSION_3
async def test_a_warm_prompt_is_cached_by_voice_and_tenant_until_it_is_revoked(
    lm: VLLMSpeechLM,
) -> None:
    shareable = len(shareable_prefix(lm.builder, long_prompt(lm)))
    assert shareable >= 4 * lm.block_size
    VOICES.append(WarmPrompt(long_prompt(lm), "ada"))
    try:
        await lm._check_and_warm(lm.engine.get())  # what every start does
    finally:
        VOICES.clear()
    assert await cached_ids(lm, "ada") >= shareable // lm.block_size * lm.block_size
    for voice, tenant in (("ada", "one"), ("ada", "two"), ("bob", "one"), (None, "one")):
        assert await cached_ids(lm, voice, tenant) == 0, "another voice's or tenant's is not used"
        assert await cached_ids(lm, voice, tenant) > 0
    lm.revoke("ada")
    assert await cached_ids(lm, "ada") == 0
    assert await cached_ids(lm, "ada", "one") == 0
    assert await cached_ids(lm, "bob", "one") > 0


@VERSION_3
async def test_late_text_stalls_only_its_own_session(lm: VLLMSpeechLM) -> None:
    gate = asyncio.Event()
    ids, prompt = tuple(checkpoint(3).tokenizer.encode(HELLO)), cases(3)["plain"].prompt

    async def late() -> AsyncIterator[tuple[int, ...]]:
        yield ids[:6]
        await gate.wait()
        yield ids[6:]

    stalled = asyncio.create_task(collect(lm, SpeechLMRequest(prompt, late(), GREEDY, max_ratio=5)))
    other = await asyncio.wait_for(
        collect(lm, SpeechLMRequest(prompt, stream([ids]), GREEDY, max_ratio=5)), 60
    )
    assert not stalled.done()
    gate.set()
    assert await asyncio.wait_for(stalled, 60) == other


@VERSION_3
async def test_the_next_token_comes_within_four_decode_steps_of_its_block(
    lm: VLLMSpeechLM,
) -> None:
    """Both for text that completes a block late and for text that has long been there."""
    per_text, per_speech = lm.builder.vocabulary.config.mix_ratio
    ids = tuple(checkpoint(3).tokenizer.encode(LONG)) * 2
    ids = ids[: len(ids) // per_text * per_text]
    prompt = cases(3)["plain"].prompt

    async def timed(late: bool) -> tuple[list[float], list[float]]:
        """Times from a block (or the token before it) to its first token, and between others."""
        spoken, given = asyncio.Event(), 0.0

        async def blocks() -> AsyncIterator[tuple[int, ...]]:
            nonlocal given
            for at in range(0, len(ids), per_text):
                given = time.perf_counter()
                yield ids[at : at + per_text]
                if late:
                    await spoken.wait()
                    spoken.clear()

        request = SpeechLMRequest(prompt, blocks() if late else stream([ids]), GREEDY, max_ratio=5)
        generation = lm.generate(request)
        waits, steps, last = [], [], 0.0
        for at in range(len(ids) // per_text * per_speech):
            await anext(generation)
            now = time.perf_counter()
            if at % per_speech == 0:
                waits.append(now - (given if late else last))
            else:
                steps.append(now - last)
            last = now
            if at % per_speech == per_speech - 1:
                spoken.set()
        await generation.aclose()
        return waits[1:], steps

    for late in (True, False):
        waits, steps = await timed(late)
        assert len(waits) >= 10
        ratio = statistics.median(waits) / statistics.median(steps)
        print(f"{'late' if late else 'early'} text: {ratio:.2f} decode steps")
        assert ratio <= 4


@VERSION_3
@pytest.mark.parametrize("seed", [242, 268])
async def test_a_sampled_fill_is_never_fed_by_either_backend(lm: VLLMSpeechLM, seed: int) -> None:
    """With these seeds the model itself ends a block early: what follows tells what was fed."""
    fill = lm.builder.vocabulary.config.ids.fill
    ids, prompt = tuple(checkpoint(3).tokenizer.encode(LONG)) * 2, cases(3)["plain"].prompt
    # Every draw is "repetitive", and so drawn from all ids, where a fill is likely enough.
    sampling = Sampling(1.0, 25, 10, 0.0, seed=seed)
    drawn: list[int] = []

    def noting(logits: torch.Tensor, draws: list[Draw]) -> list[int]:
        tokens = draw(logits, draws)
        drawn.extend(tokens)
        return tokens

    torch_lm = TorchSpeechLM.load(checkpoint(3), slots=1, positions=512, pick=noting)
    try:
        request = SpeechLMRequest(prompt, stream([ids]), sampling, max_ratio=3)
        expected = await collect(torch_lm, request)
    finally:
        await torch_lm.close()
    assert fill in drawn
    assert fill not in expected[0]
    request = replace(request, text=stream(cut(ids, UNEVEN)))
    assert await collect(lm, request) == expected


def kv_use() -> float:
    """Return the share of key and value memory in use, as vLLM reported it last."""
    from prometheus_client import REGISTRY

    for metric in REGISTRY.collect():
        for sample in metric.samples:
            if sample.name == "vllm:kv_cache_usage_perc":
                return float(sample.value)
    raise AssertionError("vLLM reports no KV use")


@VERSION_3
async def test_a_thousand_cancelled_sessions_leave_nothing(lm: VLLMSpeechLM) -> None:
    ids, prompt = tuple(checkpoint(3).tokenizer.encode(LONG)), cases(3)["zero_shot"].prompt
    engine = lm.engine.get()

    async def probe() -> float:
        await lm.sample_once(engine, [1, 2, 3])
        return kv_use()

    async def cancelled(streamed: bool) -> None:
        source = stream(cut(ids, UNEVEN)) if streamed else ids
        generation = lm.generate(SpeechLMRequest(prompt, source, GREEDY))
        await anext(generation)
        await generation.aclose()
        assert [token async for token in generation] == []

    baseline, tasks = await probe(), len(asyncio.all_tasks())
    for start in range(0, 1000, 8):
        await asyncio.gather(*(cancelled((start + i) % 2 == 0) for i in range(8)))
    assert lm.load_now == 0
    await asyncio.sleep(0.25)
    assert await probe() <= baseline
    assert len(asyncio.all_tasks()) <= tasks
    assert engine.output_processor.get_num_unfinished_requests() == 0


@VERSION_3
async def test_limits_are_refused_by_name(lm: VLLMSpeechLM) -> None:
    prompt, ids = cases(3)["plain"].prompt, tuple(checkpoint(3).tokenizer.encode(LONG))
    with pytest.raises(InvalidRequest):
        await anext(lm.generate(SpeechLMRequest(prompt, (896,), GREEDY)))
    with pytest.raises(InvalidRequest):
        await anext(lm.generate(SpeechLMRequest(prompt, stream([(896,)]), GREEDY)))
    with pytest.raises(InvalidRequest) as refused:
        await anext(lm.generate(SpeechLMRequest(prompt, ids * 40, GREEDY)))
    assert refused.value.limit == 1024
    held = [lm.generate(SpeechLMRequest(prompt, ids, GREEDY)) for _ in range(12)]
    await asyncio.gather(*(anext(generation) for generation in held))
    with pytest.raises(Overloaded) as full:
        await anext(lm.generate(SpeechLMRequest(prompt, ids, GREEDY)))
    assert full.value.retry_after_s > 0
    await asyncio.gather(*(generation.aclose() for generation in held))
    assert await collect(lm, SpeechLMRequest(prompt, (), GREEDY)) == ([], FinishReason.EMPTY)


@VERSIONS
async def test_the_check_at_load_refuses_other_numbers(lm: VLLMSpeechLM) -> None:
    """The running engine against its own probe, and against one that is off by two tolerances."""
    engine, tolerance = lm.engine.get(), PROBE_TOLERANCE[torch.float32]
    entries = json.loads((lm.model / PROBE_FILE).read_text())
    assert len(entries) >= 3
    for entry in entries:
        await lm.check_probe(engine, entry)
        for sign in (-1, 1):
            off = [value + sign * 2 * tolerance for value in entry["logp"]]
            with pytest.raises(SynthesisFailed, match="other numbers"):
                await lm.check_probe(engine, {**entry, "logp": off})


def is_there(process: BaseProcess) -> bool:
    """Whether the system still knows a process, be it as a zombie."""
    return Path(f"/proc/{process.pid}").exists()


@VERSION_3
async def test_an_engine_that_dies_comes_back(lm: VLLMSpeechLM) -> None:
    """Last of its engine: kill -9 of every process, mid-speech."""
    prompt, ids = cases(3)["plain"].prompt, tuple(checkpoint(3).tokenizer.encode(HELLO))
    request = SpeechLMRequest(prompt, ids, GREEDY, max_ratio=5)
    expected = await collect(lm, request)
    # Enrolled again after it was revoked, and since then not spoken with.
    lm.revoke("ada")
    VOICES.append(WarmPrompt(long_prompt(lm), "ada"))
    running = lm.generate(SpeechLMRequest(prompt, ids * 5, GREEDY))
    await anext(running)
    killed = list(lm.engine.processes)
    for process in killed:
        process.kill()
    with pytest.raises(SynthesisFailed):
        async for _ in running:
            pass
    assert not lm.ready
    assert lm.load_now == 0
    with pytest.raises(SynthesisFailed):
        await anext(lm.generate(request))
    await asyncio.wait_for(lm.engine.wait_ready(), 400)
    assert lm.engine.restarts == 1
    assert not any(map(is_there, killed)), "no zombie"
    VOICES.clear()
    assert await collect(lm, request) == expected
    assert await cached_ids(lm, "ada") >= 4 * lm.block_size
    assert await cached_ids(lm, "eve") == 0
