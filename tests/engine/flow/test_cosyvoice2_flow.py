"""The flow of CosyVoice 2 equals the golden arrays, whole and on upstream's schedule."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from antiphon.engine.checkpoint.document import load_document
from antiphon.engine.checkpoint.unet_config import ConformerFlowConfig
from antiphon.engine.checkpoint.unet_reader import read_conformer_flow
from antiphon.engine.checkpoint.weights import load_state_dict
from antiphon.engine.flow.cosyvoice2 import ConformerFlow
from antiphon.engine.flow.flow_matching import cosine_times, fixed_noise
from tests import golden
from tests.engine.flow.unet_cases import PLAN, check, check_full_size, tokens, velocity, voice


def config() -> ConformerFlowConfig:
    return read_conformer_flow(load_document(golden.model_dir(2) / "cosyvoice2.yaml"))


@cache
def tiny() -> ConformerFlow:
    flow = ConformerFlow(config())
    flow.load_state_dict(load_state_dict(golden.model_dir(2) / "flow.pt"), strict=True)
    return flow.eval().requires_grad_(False)


def test_encoder_and_speaker_are_the_reference_ones() -> None:
    flow = tiny()
    prompt_tokens, _, embedding = voice(2)
    golden.assert_close(flow.speaker(embedding), 2, "flow", "spk")
    ids = torch.cat([prompt_tokens, tokens(2)], dim=1)
    embedded = flow.embed(ids)
    ahead = flow.encoder.look_ahead(embedded, None)
    golden.assert_close(ahead, 2, "flow", "offline.prelookahead")
    golden.assert_close(flow.encoder(embedded, None, chunked=False), 2, "flow", "offline.encoder")
    chunked = flow.encoder(embedded, None, chunked=True)
    golden.assert_close(chunked, 2, "flow", "streaming_final_reference.encoder")
    check(2, flow.plan_mel(ids, None, chunked=False), "offline.mu")


def test_a_streamed_call_plans_the_reference_mel() -> None:
    flow = tiny()
    prompt_tokens, _, _ = voice(2)
    ids = torch.cat([prompt_tokens, tokens(2)[:, :52]], dim=1)
    known, context = ids[:, :-3], ids[:, -3:]
    ahead = flow.encoder.look_ahead(flow.embed(known), flow.embed(context))
    golden.assert_close(ahead, 2, "flow", "stream.0.prelookahead")
    check(2, flow.plan_mel(known, context, chunked=True), "stream.0.mu")


@pytest.mark.parametrize(("chunked", "name"), [(False, "full"), (True, "chunked")])
def test_estimator_is_the_reference_one(chunked: bool, name: str) -> None:
    drawn = golden.array(2, "flow", "rand_noise_slice").transpose(1, 2)
    check(2, velocity(2, tiny(), drawn, chunked=chunked), f"estimator.out_{name}")


def test_noise_and_times_are_the_reference_ones() -> None:
    check(2, fixed_noise()[None, :640], "rand_noise_slice")
    golden.assert_close(cosine_times(10), 2, "flow", "t_span")


def test_whole_solutions_are_the_reference_ones() -> None:
    prompt_tokens, mel, embedding = voice(2)
    arguments = (tokens(2), prompt_tokens, mel, embedding, PLAN)
    check(2, tiny().solve_whole(*arguments, chunked=False), "offline.mel")
    check(2, tiny().solve_whole(*arguments, chunked=True), "streaming_final_reference.mel")


@pytest.mark.parametrize("call", [0, 1, 2])
def test_upstreams_schedule_gives_upstreams_mel(call: int) -> None:
    schedule = golden.notes(2)["flow_stream_calls"][call]
    prompt_tokens, mel, embedding = voice(2)
    solved = tiny().solve_whole(
        tokens(2)[:, : schedule["n_tokens"]],
        prompt_tokens,
        mel,
        embedding,
        PLAN,
        chunked=schedule["streaming"],
        final=schedule["finalize"],
    )
    check(2, solved, f"stream.{call}.mel")


def test_full_size_keys_equal_the_manifest() -> None:
    check_full_size(2, ConformerFlow, config())
