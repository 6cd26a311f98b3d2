"""The streamed flow against an uncached run of the same hops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engine.errors import Overloaded
from antiphon.engine.flow.cache import PagePool
from antiphon.engine.flow.flow import Flow
from antiphon.engine.flow.flow_matching import fixed_noise, plan_solver
from antiphon.engine.flow.graphs import GPU_BUCKETS, CapturedVelocity, Result
from antiphon.engine.flow.step import Buckets, CachedFlow, solve
from antiphon.engine.flow.stream import ChunkSolution
from tests import golden
from tests.engine.acoustic import models

EXACT = 1e-4
MIDPOINT = plan_solver("midpoint", 2, 0.7)
UNGUIDED = plan_solver("euler", 3, 0.0)


@pytest.mark.parametrize("sizes", [(52, 50, 28), (130,), (27, 25, 78), (1, 2, 1, 126)])
def test_hops_give_the_golden_reference(sizes: tuple[int, ...]) -> None:
    streamer = models.streamer()
    tokens = golden.array(3, "flow", "tokens")[0].tolist()
    reference = golden.array(3, "flow", "streaming_final_reference.mel")[0].t()
    state = streamer.start(models.voice_of(models.prompt(), streamer), models.PLAN)
    mel = torch.zeros(260, 80)
    given_tokens = 0
    for size in sizes:
        hop = tokens[given_tokens : given_tokens + size]
        given_tokens += size
        state, pieces = models.hop(streamer, state, hop, final=given_tokens == 130)
        for first, piece in pieces:
            mel[first : first + len(piece)] = piece
    assert (mel - reference).abs().max() <= EXACT


@settings(max_examples=12, deadline=None)
@given(
    prompt=st.sampled_from([0, 10, 28, 53]),
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=5),
    plan=st.sampled_from([UNGUIDED, MIDPOINT]),
    seed=st.integers(0, 1000),
)
def test_each_hop_equals_an_uncached_run(
    prompt: int, sizes: list[int], plan: object, seed: int
) -> None:
    streamer = models.streamer(64)
    acoustic = models.prompt(prompt)
    assert plan in (UNGUIDED, MIDPOINT)
    used = MIDPOINT if plan == MIDPOINT else UNGUIDED
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 6561, (sum(sizes),), generator=generator).tolist()
    state = streamer.start(models.voice_of(acoustic, streamer), used)
    upto = 0
    for number, size in enumerate(sizes):
        final = number == len(sizes) - 1
        hop = tokens[upto : upto + size]
        upto += size
        state, pieces = models.hop(streamer, state, hop, final=final)
        available = upto if final else upto - 3
        if available <= 0 or not pieces:
            continue
        reference = models.whole(acoustic, tokens[:upto], used, final=final)
        for first, mel in pieces:
            if len(mel):
                assert (mel - reference[first : first + len(mel)]).abs().max() <= EXACT
        first, mel = pieces[-1]
        assert first + len(mel) == 2 * available


def test_a_copied_state_goes_on_by_itself() -> None:
    streamer = models.streamer()
    state = streamer.start(models.voice_of(models.prompt(28), streamer), UNGUIDED)
    state, _ = models.hop(streamer, state, list(range(40)), final=False)
    copy = state
    _, one = models.hop(streamer, state, [5] * 30, final=True)
    _, other = models.hop(streamer, copy, [9] * 30, final=True)
    _, again = models.hop(streamer, copy, [5] * 30, final=True)
    assert not torch.equal(one[-1][1], other[-1][1])
    assert torch.equal(one[-1][1], again[-1][1])


def test_a_turn_goes_on_past_the_end_of_upstreams_noise() -> None:
    """Upstream stops at 300 s of prompt and speech; here the noise begins again."""
    streamer = models.streamer(8)
    state = streamer.start(models.voice_of(models.prompt(0), streamer), UNGUIDED)
    late = replace(state, final_tokens=7475, first_token=7473, tokens=tuple(range(2 + 25 + 25 + 3)))
    mels = []
    for _ in range(2):
        solution = streamer.next_solution(late, final=False)
        assert solution is not None
        first_noise = solution.x.clone()
        solve(streamer, solution)
        mels.append((solution.start, first_noise, streamer.speech(late, solution)))
        late = streamer.finish(late, solution, None)
    assert [start for start, _, _ in mels] == [7475, 7500]
    assert torch.equal(mels[1][1], fixed_noise()[:50])
    assert mels[1][2][0] == 15_000
    assert all(torch.isfinite(mel).all() for _, _, (_, mel) in mels)


def test_pages_return_when_the_state_is_dropped() -> None:
    streamer = models.streamer()
    state = streamer.start(models.voice_of(models.prompt(53), streamer), UNGUIDED)
    state, _ = models.hop(streamer, state, list(range(60)), final=False)
    chunks = streamer.pool.used_bytes // (streamer.pool.page_bytes * 3)
    assert chunks == 4
    assert state.nbytes == state.tails.nbytes + streamer.pool.used_bytes
    del state
    assert streamer.pool.used_bytes == 0


def test_left_context_bounds_memory_and_keeps_the_prompt() -> None:
    streamer = models.streamer()
    state = streamer.start(models.voice_of(models.prompt(53), streamer), UNGUIDED)
    used = []
    for start in range(0, 500, 50):
        hop = list(range(start, start + 50))
        state, _ = models.hop(streamer, state, hop, final=False, left_context=2)
        used.append(streamer.pool.used_bytes)
    assert used[-1] == used[3]
    assert len(state.context) == 3 + 2
    assert len(state.tokens) <= 25 + 3 + 2


def test_a_full_pool_refuses_and_loses_nothing() -> None:
    streamer = models.streamer(1)
    state = streamer.start(models.voice_of(models.prompt(28), streamer), models.PLAN)
    with pytest.raises(Overloaded) as refused:
        models.hop(streamer, state, list(range(600)), final=True)
    assert refused.value.limit is not None
    del state, refused
    assert streamer.pool.used_bytes == 0


def _solution(tokens: int, prompt: int, plan: object, advance: int) -> ChunkSolution:
    state = _STREAMER.start(
        models.voice_of(models.prompt(prompt), _STREAMER),
        {"guided": models.PLAN, "plain": UNGUIDED, "midpoint": MIDPOINT}[str(plan)],
    )
    state, _ = models.hop(_STREAMER, state, list(range(tokens)), final=False)
    solution = _STREAMER.next_solution(state, final=True)
    assert solution is not None
    for _ in range(advance):
        _STREAMER.solve_step([solution])
    return solution


_STREAMER = models.streamer()


def test_rows_at_other_steps_lengths_voices_and_guidance_do_not_matter() -> None:
    cases = [
        (5, 28, "guided", 0),
        (31, 0, "guided", 3),
        (12, 53, "plain", 1),
        (60, 10, "midpoint", 2),
    ]
    alone = [_solution(*case) for case in cases]
    for solution in alone:
        solve(_STREAMER, solution)
    batch = [_solution(*case) for case in cases]
    while any(not solution.done for solution in batch):
        _STREAMER.solve_step([solution for solution in batch if not solution.done])
    for one, many in zip(alone, batch, strict=True):
        assert (one.x - many.x).abs().max() <= EXACT


def _record_on_cpu(call: Callable[[], Result]) -> Callable[[], Result]:
    """What a captured graph does: the same call on the same memory, results in the same place."""
    velocity, tails = call()
    velocity, tails = velocity.clone(), tails.clone()

    def replay() -> Result:
        for target, source in zip((velocity, tails), call(), strict=True):
            target.copy_(source)
        return velocity, tails

    return replay


@pytest.mark.parametrize("captured", [False, True])
def test_rounding_shapes_up_and_replaying_them_changes_nothing(captured: bool) -> None:
    flow, pool = models.flow(), models.streamer(64).pool
    plain = CachedFlow(flow, pool)
    velocity = (lambda dit: CapturedVelocity(dit, _record_on_cpu)) if captured else None
    rounded = CachedFlow(flow, pool, buckets=Buckets(2, 25, 4), velocity=velocity)
    hops = [list(range(9)), list(range(30)), list(range(80))]
    mels = []
    for streamer in (plain, rounded):
        states = [
            streamer.append(streamer.start(models.voice_of(models.prompt(28), streamer), plan), hop)
            for hop, plan in zip(hops, (UNGUIDED, MIDPOINT, UNGUIDED), strict=True)
        ]
        solutions = [streamer.next_solution(state, final=True) for state in states]
        waiting = [solution for solution in solutions if solution is not None]
        for call in range(4):
            active = [s for s in waiting[: 1 + call] if not s.done]
            streamer.solve_step(active)
        for solution in waiting:
            while not solution.done:
                streamer.solve_step([solution])
        mels.append([solution.x for solution in waiting])
    for one, other in zip(*mels, strict=True):
        assert (one - other).abs().max() <= EXACT


def test_a_velocity_that_is_kept_is_not_written_over_by_the_next_replay() -> None:
    """The midpoint solver keeps one between two calls; another turn's replay lies between."""
    streamer = CachedFlow(
        models.flow(),
        models.streamer(64).pool,
        buckets=Buckets(2, 25, 4),
        velocity=lambda dit: CapturedVelocity(dit, _record_on_cpu),
    )
    plan = plan_solver("midpoint", 4, 0.0)
    prompt = models.prompt(28)
    mels = []
    for together in (False, True):
        solutions = []
        for tokens in (range(20), range(40, 60)):
            state = streamer.start(models.voice_of(prompt, streamer), plan)
            solution = streamer.next_solution(streamer.append(state, list(tokens)), final=True)
            assert solution is not None
            solutions.append(solution)
        if together:
            while not solutions[0].done:
                for solution in solutions:
                    streamer.solve_step([solution])
        else:
            for solution in solutions:
                solve(streamer, solution)
        mels.append([solution.x for solution in solutions])
    for alone, beside in zip(*mels, strict=True):
        assert torch.equal(alone, beside)


@given(count=st.integers(1, 300), step=st.sampled_from([1, 2, 3]))
def test_rows_are_rounded_up_to_few_counts(count: int, step: int) -> None:
    rounded = Buckets(rows=step).round_rows(count)
    assert rounded == count if step == 1 else count <= rounded < 2 * max(count, step)
    assert len({Buckets(rows=2).round_rows(n) for n in range(1, 129)}) == 7


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_graphs_on_a_gpu_give_the_mel_of_the_cpu() -> None:
    flow = Flow(models.checkpoint().flow_config)
    flow.load_state_dict(models.checkpoint().flow_state_dict(), strict=True)
    flow = flow.eval().requires_grad_(False).cuda()
    config = flow.config.estimator
    pool = PagePool(
        layers=config.depth,
        frames=config.static_chunk_size,
        width=config.heads * config.dim_head,
        budget_bytes=64 << 20,
        device="cuda",
    )
    streamer = CachedFlow(flow, pool, buckets=GPU_BUCKETS, velocity=CapturedVelocity)
    tokens = golden.array(3, "flow", "tokens")[0].tolist()[:47]
    exact = models.whole(models.prompt(28), tokens)
    for _ in range(2):  # captured, then replayed
        state = streamer.start(models.voice_of(models.prompt(28), streamer), models.PLAN)
        _, pieces = models.hop(streamer, state, tokens, final=True)
        mel = torch.cat([piece for _, piece in pieces]).cpu()
        assert (mel - exact).abs().max() <= 1e-2


def test_half_precision_keeps_the_mel_close() -> None:
    config = models.flow().config.estimator
    pool = PagePool(
        layers=config.depth, frames=50, width=64, budget_bytes=8 << 20, dtype=torch.bfloat16
    )
    streamer = CachedFlow(models.flow(), pool)
    state = streamer.start(models.voice_of(models.prompt(28), streamer), models.PLAN)
    tokens = golden.array(3, "flow", "tokens")[0].tolist()[:47]
    _, pieces = models.hop(streamer, state, tokens, final=True)
    mel = torch.cat([piece for _, piece in pieces])
    exact = models.whole(models.prompt(28), tokens)
    assert mel.dtype == torch.float32
    assert (mel - exact).abs().mean() < 0.02 * exact.std()


def test_a_large_pool_takes_no_memory_before_it_is_used() -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    if not Path("/proc/self/statm").exists():
        pytest.skip("resident memory is read from /proc")
    before = resident()
    pool = PagePool(layers=2, frames=50, width=64, budget_bytes=512 << 20)
    assert pool.capacity * pool.page_bytes > 500 << 20
    assert resident() - before < 64 << 20
