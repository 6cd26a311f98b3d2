"""The acoustic engine in a process of its own: the same samples, errors, limits and ends."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from antiphon.engine.acoustic.engine import DecoderEngine
from antiphon.engine.acoustic.interface import AcousticSettings
from antiphon.engine.acoustic.loader import load_acoustic_engine
from antiphon.engine.acoustic.process import ProcessWorker
from antiphon.engine.acoustic.settings import EngineSettings
from antiphon.engine.errors import AntiphonError, CheckpointError, Overloaded, SynthesisFailed
from tests.engine.acoustic import models
from tests.server.harness import eventually

FAST = AcousticSettings(steps=2)
SETTINGS = EngineSettings(cache_mib=2, voices_mib=1, own_process=True)


def _tokens(count: int) -> list[int]:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 6561, (count,), generator=generator).tolist()


@pytest.fixture(scope="module")
def engine() -> DecoderEngine:
    # Left to the end of the module's process, which ends its daemon.
    return load_acoustic_engine(models.checkpoint(), SETTINGS)


@pytest.fixture
async def beside() -> AsyncIterator[DecoderEngine]:
    made = load_acoustic_engine(models.checkpoint(), EngineSettings(cache_mib=2, voices_mib=1))
    yield made
    await made.close()


async def _speak(engine: DecoderEngine, hops: list[list[int]]) -> np.ndarray:
    stream = await engine.open(models.prompt(28), FAST)
    pieces = [
        (await stream.speak(hop, final=number == len(hops) - 1)).samples
        for number, hop in enumerate(hops)
    ]
    stream.close()
    return np.concatenate(pieces)


async def test_it_makes_the_samples_of_the_thread(
    engine: DecoderEngine, beside: DecoderEngine
) -> None:
    tokens = _tokens(40)
    hops = [tokens[:9], tokens[9:25], tokens[25:]]
    ours, theirs = await _speak(engine, hops), await _speak(beside, hops)
    assert engine.sample_rate == beside.sample_rate
    assert np.array_equal(ours, theirs)


async def test_a_session_that_finds_no_memory_fails_alone_and_gives_it_back(
    engine: DecoderEngine,
) -> None:
    greedy = await engine.open(
        models.prompt(0), AcousticSettings(steps=2, left_context_chunks=None)
    )
    modest = await engine.open(models.prompt(0), FAST)
    with pytest.raises(Overloaded) as refused:
        await greedy.speak(_tokens(900), final=True)
    assert refused.value.retry_after_s > 0
    assert refused.value.limit
    greedy.close()
    assert len((await modest.speak(_tokens(25), final=True)).samples) == 25 * 960
    modest.close()
    engine.forget_voice(models.prompt(28).key)
    last = await engine.open(models.prompt(0), FAST)
    await last.speak((), final=True)
    assert engine.cache_bytes == 0
    last.close()


async def test_cancelling_frees_what_it_held(engine: DecoderEngine) -> None:
    stream = await engine.open(models.prompt(0), FAST)
    speaking = asyncio.ensure_future(stream.speak(_tokens(1400), final=True))
    await asyncio.sleep(0.05)
    speaking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await speaking
    other = await engine.open(models.prompt(0), FAST)
    await other.speak((), final=True)
    assert engine.cache_bytes == 0
    other.close()


async def test_a_process_that_dies_fails_its_turns_and_the_next_one_speaks() -> None:
    worker = ProcessWorker(partial(_decoder, models.checkpoint().directory), SETTINGS)
    engine = DecoderEngine(worker, SETTINGS)
    stream = await engine.open(models.prompt(0), FAST)
    assert engine.ready
    speaking = asyncio.ensure_future(stream.speak(_tokens(1400), final=True))
    await asyncio.sleep(0.05)
    process = worker._child.process
    assert process.pid
    os.kill(process.pid, signal.SIGTERM)  # ignored: the server decides when to end
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(SynthesisFailed):
        await asyncio.wait_for(speaking, 10)
    assert not engine.ready
    with pytest.raises(SynthesisFailed):
        await stream.speak(_tokens(5), final=True)
    stream.close()
    await eventually(lambda: engine.ready, 30)  # without anybody asking for it
    assert len(await _speak(engine, [_tokens(10)])) == 10 * 960
    await engine.close()
    with pytest.raises(SynthesisFailed, match="closed"):
        await engine.open(models.prompt(0), FAST)


async def test_every_turn_ends_however_its_process_does() -> None:
    worker = ProcessWorker(partial(_decoder, models.checkpoint().directory), SETTINGS)
    engine = DecoderEngine(worker, SETTINGS)
    for _ in range(3):
        await eventually(lambda: engine.ready, 30)
        # One after the other: the second finds a new process where the first lost its own.
        turns = [asyncio.ensure_future(_speak(engine, [_tokens(200)]))]
        await asyncio.sleep(0.02)
        worker._child.process.kill()
        turns += [asyncio.ensure_future(_speak(engine, [_tokens(10)])) for _ in range(3)]
        ends = await asyncio.wait_for(asyncio.gather(*turns, return_exceptions=True), 30)
        assert all(isinstance(end, SynthesisFailed | np.ndarray) for end in ends)
    await engine.close()


async def test_a_process_that_does_not_read_holds_up_nobody() -> None:
    worker = ProcessWorker(partial(_decoder, models.checkpoint().directory), SETTINGS)
    engine = DecoderEngine(worker, SETTINGS)
    await eventually(lambda: engine.ready, 30)
    pid = worker._child.process.pid
    assert pid
    os.kill(pid, signal.SIGSTOP)
    # Their prompts are more than the pipe takes.
    turns = [asyncio.ensure_future(engine.open(models.prompt(1000), FAST)) for _ in range(8)]
    await asyncio.sleep(0)
    assert not any(turn.done() for turn in turns)
    os.kill(pid, signal.SIGCONT)
    for turn in turns:
        (await asyncio.wait_for(turn, 30)).close()
    await engine.close()


def _decoder(directory: Path) -> object:
    from antiphon.engine.acoustic.loader import _load_from

    return _load_from(directory, SETTINGS, "cpu")


def test_what_cannot_be_loaded_is_said(tmp_path: Path) -> None:
    worker = ProcessWorker(partial(_decoder, tmp_path), SETTINGS)
    with pytest.raises(CheckpointError):
        _ = worker.sample_rate
    worker.stop()


@pytest.mark.parametrize(
    "error",
    [
        Overloaded("full", retry_after_s=2.0, limit=3),
        SynthesisFailed("no", field="a", limit="b"),
    ],
)
def test_errors_travel_whole(error: AntiphonError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert vars(copy) == vars(error)
    assert str(copy) == str(error)
