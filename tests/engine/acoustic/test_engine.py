"""The engine as sessions use it: lengths, cancel, limits, errors, many at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engine.acoustic.core import AcousticCore, Hop, Stream
from antiphon.engine.acoustic.engine import TorchAcousticEngine
from antiphon.engine.acoustic.interface import AcousticSettings, SpokenHop
from antiphon.engine.acoustic.settings import EngineSettings, validate_session
from antiphon.engine.errors import (
    AntiphonError,
    InvalidConfiguration,
    InvalidRequest,
    Overloaded,
    SynthesisFailed,
)
from antiphon.engine.flow.step import CachedFlow
from antiphon.engine.flow.stream import ChunkSolution
from antiphon.engine.vocoder.hift import HiFT
from tests.engine.acoustic import models

FAST = AcousticSettings(steps=2)


@pytest.fixture
async def engine() -> AsyncIterator[TorchAcousticEngine]:
    made = TorchAcousticEngine(models.flow(), models.hift(), models.small_settings())
    yield made
    await made.close()


def _tokens(count: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 6561, (count,), generator=generator).tolist()


async def _speak(
    engine: TorchAcousticEngine, tokens: list[int], hop: int, prompt: int = 28
) -> np.ndarray:
    stream = await engine.open(models.prompt(prompt), FAST)
    pieces = []
    for start in range(0, len(tokens), hop):
        final = start + hop >= len(tokens)
        spoken = await stream.speak(tokens[start : start + hop], final=final)
        pieces.append(spoken.samples)
    stream.close()
    return np.concatenate(pieces)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 25, 26, 31])
async def test_samples_are_960_for_each_token(engine: TorchAcousticEngine, count: int) -> None:
    for hop in (1, 5, 40):
        samples = await _speak(engine, _tokens(count), hop)
        assert len(samples) == 960 * count
        assert samples.dtype == np.float32
        assert np.isfinite(samples).all()


async def test_an_empty_turn_makes_no_samples(engine: TorchAcousticEngine) -> None:
    stream = await engine.open(models.prompt(28), FAST)
    assert len((await stream.speak((), final=True)).samples) == 0
    stream.close()


async def test_tokens_may_end_with_an_empty_final_hop(engine: TorchAcousticEngine) -> None:
    stream = await engine.open(models.prompt(28), FAST)
    first = await stream.speak(_tokens(22), final=False)
    last = await stream.speak((), final=True)
    stream.close()
    assert len(first.samples) + len(last.samples) == 960 * 22


async def test_hops_on_the_grid_equal_one_hop(engine: TorchAcousticEngine) -> None:
    tokens = _tokens(22 + 50)
    whole = await _speak(engine, tokens, 72)
    stream = await engine.open(models.prompt(28), FAST)
    pieces = [await stream.speak(tokens[:25], final=False)]
    pieces.append(await stream.speak(tokens[25:50], final=False))
    pieces.append(await stream.speak(tokens[50:], final=True))
    stream.close()
    streamed = np.concatenate([piece.samples for piece in pieces])
    # Phase integrates what noise float32 leaves in the mel: the bound of the golden index.
    assert np.abs(streamed - whole).max() < 2e-3


async def test_a_known_voice_is_not_solved_again(engine: TorchAcousticEngine) -> None:
    await engine.warm_voice(models.prompt(78), FAST)
    held = engine.cache_bytes
    assert held > 0
    one = await engine.open(models.prompt(78), FAST)
    two = await engine.open(models.prompt(78), FAST)
    for stream in (one, two):
        await stream.speak(_tokens(8), final=False)
    assert engine.cache_bytes == held, "three prompt chunks, shared"
    for stream in (one, two):
        stream.close()


async def test_a_revoked_voice_is_dropped_at_once_and_its_pages_with_the_last_session(
    engine: TorchAcousticEngine,
) -> None:
    await engine.warm_voice(models.prompt(78), FAST)
    stream = await engine.open(models.prompt(78), FAST)
    await stream.speak(_tokens(8), final=False)
    engine.forget_voice(models.prompt(78).key)
    await stream.speak(_tokens(8), final=False)
    assert engine.cache_bytes > 0
    stream.close()
    other = await engine.open(models.prompt(0, key="other"), FAST)
    await other.speak((), final=True)
    other.close()
    assert engine.cache_bytes == 0


async def test_closing_frees_memory_and_cancels_what_waits(engine: TorchAcousticEngine) -> None:
    stream = await engine.open(models.prompt(28), AcousticSettings(steps=60))
    speaking = asyncio.ensure_future(stream.speak(_tokens(200), final=True))
    await asyncio.sleep(0.05)
    stream.close()
    stream.close()
    with pytest.raises(asyncio.CancelledError):
        await speaking
    engine.forget_voice(models.prompt(28).key)
    other = await engine.open(models.prompt(0), FAST)
    await other.speak((), final=True)
    assert engine.cache_bytes == 0
    with pytest.raises(SynthesisFailed):
        await stream.speak((), final=True)
    other.close()


async def test_cancelling_the_waiting_task_closes_the_stream(engine: TorchAcousticEngine) -> None:
    stream = await engine.open(models.prompt(0), AcousticSettings(steps=60))
    speaking = asyncio.ensure_future(stream.speak(_tokens(400), final=True))
    await asyncio.sleep(0.02)
    speaking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await speaking
    assert stream.nbytes == 0


async def test_the_loop_is_never_blocked(engine: TorchAcousticEngine) -> None:
    stream = await engine.open(models.prompt(78), FAST)
    started = time.monotonic()
    speaking = asyncio.ensure_future(stream.speak(_tokens(150), final=True))
    ticks = 0
    while not speaking.done():
        await asyncio.sleep(0.001)
        ticks += 1
    assert ticks > (time.monotonic() - started) / 0.05
    stream.close()


async def test_too_many_turns_are_refused(engine: TorchAcousticEngine) -> None:
    limited = TorchAcousticEngine(
        models.flow(), models.hift(), models.small_settings(max_streams=1)
    )
    first = await limited.open(models.prompt(0), FAST)
    with pytest.raises(Overloaded) as refused:
        await limited.open(models.prompt(0), FAST)
    assert refused.value.retry_after_s > 0
    first.close()
    (await limited.open(models.prompt(0), FAST)).close()
    await limited.close()


async def test_a_session_that_finds_no_memory_fails_alone_and_gives_it_back() -> None:
    small = TorchAcousticEngine(
        models.flow(), models.hift(), EngineSettings(cache_mib=2, voices_mib=1)
    )
    greedy = await small.open(models.prompt(0), AcousticSettings(steps=2, left_context_chunks=None))
    modest = await small.open(models.prompt(0), FAST)
    with pytest.raises(Overloaded):
        await greedy.speak(_tokens(900), final=True)
    greedy.close()
    spoken = await modest.speak(_tokens(25), final=True)
    assert len(spoken.samples) == 25 * 960
    modest.close()
    await small.close()


async def test_tokens_outside_of_the_codebook_are_refused(engine: TorchAcousticEngine) -> None:
    stream = await engine.open(models.prompt(0), FAST)
    for tokens in ([6561], [-1], [0] * 2000):
        with pytest.raises(InvalidRequest) as refused:
            await stream.speak(tokens, final=False)
        assert refused.value.field == "tokens"
    stream.close()


async def test_a_mel_that_is_not_finite_is_an_error_and_others_go_on(
    engine: TorchAcousticEngine,
) -> None:
    broken = models.prompt(28, key="broken")
    broken.mel[3, 3] = np.nan
    bad = await engine.open(broken, FAST)
    good = await engine.open(models.prompt(28), FAST)
    failed, spoken = await asyncio.gather(
        bad.speak(_tokens(30), final=True),
        good.speak(_tokens(30), final=True),
        return_exceptions=True,
    )
    assert isinstance(failed, SynthesisFailed)
    assert isinstance(spoken, SpokenHop)
    bad.close()
    good.close()


async def test_a_closed_engine_says_so() -> None:
    closed = TorchAcousticEngine(models.flow(), models.hift(), models.small_settings())
    stream = await closed.open(models.prompt(0), FAST)
    await closed.close()
    with pytest.raises(SynthesisFailed):
        await asyncio.wait_for(stream.speak(_tokens(5), final=True), 2)
    with pytest.raises(SynthesisFailed):
        await asyncio.wait_for(closed.open(models.prompt(0), FAST), 2)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("steps", 0), ("steps", 65), ("steps", 2.5), ("cfg_rate", -0.1), ("cfg_rate", float("nan")),
        ("solver", "heun"), ("left_context_chunks", 0), ("lead_s", -1.0),
    ],
)  # fmt: skip
def test_settings_out_of_range_name_their_field(field: str, value: object) -> None:
    with pytest.raises(InvalidConfiguration) as refused:
        validate_session(AcousticSettings(**{field: value}))  # type: ignore[arg-type]
    assert refused.value.field == field


@pytest.mark.parametrize("field", ["cache_mib", "max_streams", "batch_rows", "free_rows"])
def test_limits_out_of_range_name_their_field(field: str) -> None:
    with pytest.raises(InvalidConfiguration) as refused:
        EngineSettings(**{field: 0})
    assert refused.value.field == field


def _core(**changes: float) -> AcousticCore:
    limits = models.small_settings(**({"batch_rows": 8, "free_rows": 8} | changes))
    return AcousticCore(models.streamer(), models.vocoder(), limits)


def _open(core: AcousticCore, prompt: int, asked: AcousticSettings) -> Stream:
    acoustic = models.prompt(prompt)
    voice = models.voice_of(acoustic, models.streamer(1))
    return core.open(acoustic.key, voice, asked, 0.0)


def _mel(hop: Hop) -> torch.Tensor:
    assert hop.work is not None
    return torch.cat([torch.zeros(0, 80), *hop.work.mel])


def _alone(prompt: int, asked: AcousticSettings, hops: list[list[int]]) -> list[Hop]:
    core = _core()
    stream = _open(core, prompt, asked)
    spoken = []
    for number, tokens in enumerate(hops):
        final = number == len(hops) - 1
        hop = core.submit(stream, tokens, final=final, deadline=None, now=0.0)
        while hop.result is None:
            core.step(0.0)
        spoken.append(hop)
    return spoken


def _assert_same(mine: Hop, reference: Hop) -> None:
    assert isinstance(mine.result, SpokenHop)
    assert isinstance(reference.result, SpokenHop)
    torch.testing.assert_close(_mel(mine), _mel(reference), atol=1e-4, rtol=0)
    # Phase integrates what noise float32 leaves in the mel: the bound of the golden index.
    np.testing.assert_allclose(mine.result.samples, reference.result.samples, atol=2e-3)


@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_a_session_is_the_same_alone_and_in_any_batch(data: st.DataObject) -> None:
    """Random arrivals, hops, voices, solvers and cancels."""
    choices = [
        AcousticSettings(steps=2),
        AcousticSettings(steps=3, cfg_rate=0.0),
        AcousticSettings(steps=1, solver="midpoint", cfg_rate=0.3),
    ]
    plans = []
    for number in range(data.draw(st.integers(2, 3))):
        sizes = data.draw(st.lists(st.integers(1, 30), min_size=1, max_size=2))
        tokens = _tokens(sum(sizes), seed=number)
        hops, start = [], 0
        for size in sizes:
            hops.append(tokens[start : start + size])
            start += size
        plans.append(
            (
                data.draw(st.sampled_from([0, 28, 53])),
                data.draw(st.sampled_from(choices)),
                hops,
                data.draw(st.integers(0, 12)),
                data.draw(st.booleans()) and number > 0,
            )
        )
    core = _core()
    running: dict[int, tuple[Stream, Hop, int]] = {}
    heard: dict[int, list[Hop]] = {number: [] for number in range(len(plans))}
    for now in range(120):
        for number, (prompt, asked, hops, arrival, _) in enumerate(plans):
            if now == arrival:
                stream = _open(core, prompt, asked)
                hop = core.submit(
                    stream, hops[0], final=len(hops) == 1, deadline=None, now=float(now)
                )
                running[number] = (stream, hop, 0)
        core.step(float(now))
        for number, (stream, hop, index) in list(running.items()):
            hops, cancelled = plans[number][2], plans[number][4]
            if cancelled and now > plans[number][3] + 7:
                core.cancel(stream)
                del running[number]
            elif hop.result is not None:
                heard[number].append(hop)
                index += 1
                if index == len(hops):
                    del running[number]
                    continue
                final = index == len(hops) - 1
                hop = core.submit(stream, hops[index], final=final, deadline=None, now=float(now))
                running[number] = (stream, hop, index)
    assert not running
    for number, (prompt, asked, hops, _, cancelled) in enumerate(plans):
        expected = _alone(prompt, asked, hops)
        for mine, reference in zip(heard[number], expected, strict=not cancelled):
            _assert_same(mine, reference)


def test_running_out_of_device_memory_fails_only_who_asked_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    core = _core()
    streams = [_open(core, 0, AcousticSettings(steps=2)) for _ in range(2)]
    hops = [
        core.submit(stream, _tokens(5 + 20 * n), final=True, deadline=None, now=0.0)
        for n, stream in enumerate(streams)
    ]
    real = CachedFlow.solve_step

    def limited(self: CachedFlow, solutions: Sequence[ChunkSolution]) -> None:
        if any(solution.frames > 20 for solution in solutions):
            raise torch.OutOfMemoryError("no room")
        real(self, solutions)

    monkeypatch.setattr(CachedFlow, "solve_step", limited)
    for _ in range(10):
        core.step(0.0)
    assert isinstance(hops[0].result, SpokenHop)
    assert isinstance(hops[1].result, AntiphonError)


def test_a_vocoder_that_finds_no_memory_fails_its_session_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = HiFT.advance

    def limited(self: HiFT, mel: torch.Tensor, *rest: Any, final: bool) -> Any:
        if mel.shape[1] > 20:
            raise torch.OutOfMemoryError("no room")
        return real(self, mel, *rest, final=final)

    monkeypatch.setattr(HiFT, "advance", limited)
    core = _core()
    streams = [_open(core, 0, AcousticSettings(steps=1)) for _ in range(2)]
    hops = [
        core.submit(stream, _tokens(4 + 20 * n), final=True, deadline=None, now=0.0)
        for n, stream in enumerate(streams)
    ]
    for _ in range(4):
        core.step(0.0)
    assert isinstance(hops[0].result, SpokenHop)
    assert isinstance(hops[1].result, SynthesisFailed)
    assert "vocoder" in str(hops[1].result)


@pytest.mark.parametrize("batch_rows", [2, 16])
def test_under_contention_calls_are_not_computed_further_ahead_than_their_lead(
    batch_rows: int,
) -> None:
    """Three calls at 1.5 s and a client that takes all it gets; a call of the model takes 20 ms."""
    lead_s, chunk = 1.5, 25
    core = _core(batch_rows=batch_rows, free_rows=2)
    asked = [replace(FAST, lead_s=lead_s)] * 3 + [FAST]
    streams = [_open(core, 28, settings) for settings in asked]
    dry_at: list[float | None] = [None] * len(streams)
    hops = [0] * len(streams)
    waiting: dict[int, Hop] = {}
    ahead: list[list[float]] = [[] for _ in streams]
    late = 0
    now = 0.0
    while not all(count == 6 for count in hops):
        for number, stream in enumerate(streams):
            if number not in waiting and hops[number] < 6:
                waiting[number] = core.submit(
                    stream, _tokens(chunk), final=False, deadline=dry_at[number], now=now
                )
        before = {number for number, hop in waiting.items() if hop.started_at is None}
        _, wake_at, busy = core.step(now)
        for number in before:
            hop = waiting[number]
            if hop.started_at is not None and hop.deadline is not None:
                ahead[number].append(hop.deadline - now)
        now = now + 0.02 if busy or wake_at is None else wake_at
        for number, hop in list(waiting.items()):
            if hop.result is None:
                continue
            assert isinstance(hop.result, SpokenHop)
            late += dry_at[number] is not None and now > (dry_at[number] or 0.0)
            dry_at[number] = max(now, dry_at[number] or now) + len(hop.result.samples) / 24_000
            hops[number] += 1
            del waiting[number]
    assert late == 0
    assert all(max(leads) <= lead_s + 1e-6 for leads in ahead[:3])
    # The calls really waited, and what they left was the other one's.
    assert all(max(leads) > lead_s - 0.1 for leads in ahead[:3])
    assert max(ahead[3]) > 2.5
