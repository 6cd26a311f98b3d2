"""The acoustic engine in a process of its own: the same samples, errors, limits and ends."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from antiphon.engine.acoustic.decoder import Decoder
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
    # Left to the end of the interpreter, which ends it.
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


@pytest.mark.parametrize("busy", [False, pytest.param(True, marks=pytest.mark.slow)])
async def test_a_process_that_hangs_fails_its_turns_and_another_is_started_warm(
    busy: bool,
) -> None:
    settings = replace(SETTINGS, hang_limit_s=1.0)
    worker = ProcessWorker(partial(_decoder, models.checkpoint().directory), settings)
    engine = DecoderEngine(worker, settings)
    await engine.warm_voice(models.prompt(28), FAST)
    await engine.warm_voice(models.prompt(53), FAST)
    engine.forget_voice(models.prompt(53).key)
    stream = await engine.open(models.prompt(28), FAST)
    await stream.speak(_tokens(10), final=False)
    held = engine.cache_bytes
    pid = worker._child.process.pid
    assert pid
    if busy:
        speaking = asyncio.ensure_future(stream.speak(_tokens(1400), final=True))
        await asyncio.sleep(0.05)
    os.kill(pid, signal.SIGSTOP)
    if not busy:  # idle when it was stopped, asked afterwards
        speaking = asyncio.ensure_future(stream.speak(_tokens(10), final=False))
    with pytest.raises(SynthesisFailed, match="hangs"):
        await asyncio.wait_for(speaking, 5)
    assert not engine.ready
    stream.close()
    await eventually(lambda: not _alive(pid), 10)
    await eventually(lambda: engine.ready, 60)
    # The voice's prompt is there again before anyone asks; that of the forgotten one is not.
    assert 0 < engine.cache_bytes <= held
    opened = await engine.open(models.prompt(28), FAST)
    await opened.speak(_tokens(10), final=False)
    assert engine.cache_bytes == held
    opened.close()
    await engine.close()


@pytest.mark.slow
async def test_long_work_is_no_hang() -> None:
    """Longer than the limit all in all, while each call of the model is shorter."""
    settings = replace(SETTINGS, cache_mib=1024, hang_limit_s=1.0)
    make = partial(_decoder, models.checkpoint().directory, settings)
    worker = ProcessWorker(make, settings)
    engine = DecoderEngine(worker, settings)
    await eventually(lambda: engine.ready, 60)  # loading took longer than that
    pid = worker._child.process.pid
    patient = AcousticSettings(steps=64)
    streams = [await engine.open(models.prompt(78), patient) for _ in range(2)]
    started = time.monotonic()
    await asyncio.gather(*(stream.speak(_tokens(500), final=False) for stream in streams))
    assert time.monotonic() - started > settings.hang_limit_s
    for stream in streams:
        stream.close()
    await asyncio.sleep(1.5)  # nor is having nothing to do
    assert engine.ready
    assert worker._child.process.pid == pid
    await engine.close()


async def test_a_process_that_never_loads_is_given_up() -> None:
    worker = ProcessWorker(_endless, replace(SETTINGS, loading_limit_s=0.5))
    with pytest.raises(SynthesisFailed, match="hangs"):
        await asyncio.wait_for(asyncio.to_thread(lambda: worker.sample_rate), 30)
    worker.stop()


@pytest.mark.slow
async def test_a_worker_thread_that_ends_takes_its_process_with_it() -> None:
    settings = replace(SETTINGS, hang_limit_s=0.4)
    worker = ProcessWorker(_mortal, settings)
    engine = DecoderEngine(worker, settings)
    stream = await engine.open(models.prompt(0), FAST)
    pid = worker._child.process.pid
    with pytest.raises(SynthesisFailed, match="worker died"):
        await stream.speak(_tokens(10), final=True)
    stream.close()
    await eventually(lambda: worker._child.process.pid != pid, 10)
    await eventually(lambda: engine.ready, 60)
    await engine.close()


def _alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def _endless() -> Decoder:
    while True:
        time.sleep(60)


def _mortal() -> Decoder:
    decoder = _decoder(models.checkpoint().directory)

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    decoder.streamer.solve_step = fail  # type: ignore[method-assign]
    return decoder


def _decoder(directory: Path, settings: EngineSettings = SETTINGS) -> Decoder:
    from antiphon.engine.acoustic.loader import _load_from

    return _load_from(directory, settings, "cpu")


def test_a_program_that_fails_before_it_stops_the_engine_ends_and_takes_it_along() -> None:
    program = (
        "from antiphon.engine.acoustic.loader import load_acoustic_engine\n"
        "from tests.engine.acoustic.test_process import SETTINGS, models\n"
        "made = load_acoustic_engine(models.checkpoint(), SETTINGS)\n"
        "print(made.sample_rate, made._worker._child.process.pid, flush=True)\n"
        "raise SystemExit(3)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, timeout=60, check=False
    )
    assert ended.returncode == 3
    rate, process = map(int, ended.stdout.split())
    assert rate == 24_000
    assert not Path(f"/proc/{process}").exists()


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
