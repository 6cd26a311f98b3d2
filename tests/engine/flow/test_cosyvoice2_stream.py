"""CosyVoice 2's mel, streamed with caches, equals the mel of the whole."""

from __future__ import annotations

import gc
from dataclasses import replace
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from antiphon.engine.errors import Overloaded
from antiphon.engine.flow.cosyvoice2_stream import ConformerState, ConformerStreamer
from antiphon.engine.flow.flow_matching import SolverPlan, plan_solver
from tests import golden
from tests.engine.flow.test_cosyvoice2_flow import tiny
from tests.engine.flow.unet_cases import PLAN, tokens, voice

QUICK = plan_solver("midpoint", 1, 0.7)


def start(
    streamer: ConformerStreamer, plan: SolverPlan, prompt_tokens: int = 101
) -> ConformerState:
    ids, mel, embedding = voice(2)
    known = streamer.voice(ids[0, :prompt_tokens], mel[0, : 2 * prompt_tokens], embedding[0])
    return streamer.start(known, plan)


def hop(
    streamer: ConformerStreamer,
    state: ConformerState,
    ids: list[int],
    mel: Tensor,
    *,
    final: bool,
    left_context: int | None = None,
) -> tuple[ConformerState, Tensor]:
    """Append tokens, solve what can be solved; frames solved again replace the old ones."""
    state = streamer.append(state, ids)
    while (solution := streamer.next_solution(state, final=final)) is not None:
        while not solution.done:
            streamer.solve_step([solution])
        first, frames = streamer.speech(state, solution)
        if len(frames):
            mel = torch.cat([mel[:first], frames])
        before = state.final_tokens
        state = streamer.finish(state, solution, left_context)
        if state.final_tokens == before:
            break
    return state, mel


def stream(cuts: list[int], plan: SolverPlan, prompt_tokens: int = 101) -> list[Tensor]:
    streamer = ConformerStreamer(tiny())
    state = start(streamer, plan, prompt_tokens)
    ids = tokens(2)[0].tolist()
    mel = torch.zeros(0, 80)
    seen = []
    edges = [0, *cuts, len(ids)]
    for index in range(len(edges) - 1):
        final = index == len(edges) - 2
        state, mel = hop(streamer, state, ids[edges[index] : edges[index + 1]], mel, final=final)
        seen.append(mel)
    return seen


def test_upstreams_hops_give_upstreams_chunks_and_the_chunked_end() -> None:
    # Upstream solves its last chunk with full attention: a seam before every ending. Ours goes on
    # with the chunked mask, so that the end continues what was heard.
    first, second, last = stream([52, 102], PLAN)
    for mel, name in ((first, "stream.0.mel"), (second, "stream.1.mel")):
        golden.assert_close(mel.T[None], 2, "flow", name)
    golden.assert_close(last.T[None], 2, "flow", "streaming_final_reference.mel")
    upstream_last = golden.array(2, "flow", "stream.2.mel")[0].T
    assert (upstream_last[198:] - last[198:]).abs().max() > 0.1


@cache
def whole() -> Tensor:
    return stream([], QUICK)[-1]


@settings(max_examples=5, deadline=None)
@given(st.lists(st.integers(1, 129), max_size=4, unique=True).map(sorted))
def test_every_cut_gives_the_same_mel(cuts: list[int]) -> None:
    torch.testing.assert_close(stream(cuts, QUICK)[-1], whole(), atol=1e-4, rtol=0)


def test_hops_cost_their_own_frames_and_the_left_context_can_be_bounded() -> None:
    streamer = ConformerStreamer(tiny())
    state = start(streamer, QUICK)
    mel = torch.zeros(0, 80)
    sizes = []
    for index in range(0, 260, 25):
        ids = tokens(2)[0, index % 125 : index % 125 + 25].tolist()
        state, mel = hop(streamer, state, ids, mel, final=False, left_context=2)
        sizes.append(state.estimator[0].nbytes)
    # Prompt of 5 blocks and 2 more: from then on the estimator's memory stays as it is.
    assert sizes[-1] == sizes[-2] == sizes[-3]
    assert torch.isfinite(mel).all()


def test_a_copied_state_is_a_stream_of_its_own() -> None:
    streamer = ConformerStreamer(tiny())
    shared, mel = hop(streamer, start(streamer, QUICK), [], torch.zeros(0, 80), final=False)
    assert shared.final_tokens == streamer.prompt_tokens_to_share(shared) == 75
    ids = tokens(2)[0].tolist()
    _, first = hop(streamer, shared, ids[:40], mel, final=True)
    _, other = hop(streamer, shared, ids[40:90], mel, final=True)
    _, again = hop(streamer, shared, ids[:40], mel, final=True)
    assert other.shape != first.shape
    torch.testing.assert_close(first, again, atol=0, rtol=0)


def test_a_voice_without_prompt_streams_too() -> None:
    assert stream([30], QUICK, prompt_tokens=0)[-1].shape == (260, 80)


def test_memory_is_bounded_and_given_back() -> None:
    streamer = ConformerStreamer(tiny(), memory_bytes=1)
    state = start(streamer, QUICK, prompt_tokens=0)
    ids = tokens(2)[0].tolist()
    state, _ = hop(streamer, state, ids[:28], torch.zeros(0, 80), final=False)
    assert streamer.cache_bytes == state.nbytes > 0
    with pytest.raises(Overloaded) as caught:
        hop(streamer, state, ids[28:56], torch.zeros(50, 80), final=False)
    assert caught.value.retry_after_s > 0
    del state, caught
    gc.collect()
    assert streamer.cache_bytes == 0


def test_speech_goes_on_past_300_seconds() -> None:
    # Upstream's noise buffer ends there, and with it the call.
    streamer = ConformerStreamer(tiny())
    state = start(streamer, QUICK, prompt_tokens=0)
    state, _ = hop(streamer, state, tokens(2)[0, :28].tolist(), torch.zeros(0, 80), final=False)
    waiting = tuple(tokens(2)[0, 23:53].tolist())
    far = replace(state, tokens=waiting, first_token=7498, final_tokens=7500)
    solution = streamer.next_solution(far, final=False)
    assert solution is not None
    assert solution.frames == 50
    while not solution.done:
        streamer.solve_step([solution])
    assert torch.isfinite(solution.x).all()
    assert streamer.speech(far, solution)[0] == 15_000
