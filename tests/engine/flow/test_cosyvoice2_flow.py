"""The flow of CosyVoice 2 equals the golden arrays, whole and on upstream's schedule."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor

from antiphon.engine.checkpoint.document import load_document
from antiphon.engine.checkpoint.unet_config import ConformerFlowConfig
from antiphon.engine.checkpoint.unet_reader import read_conformer_flow
from antiphon.engine.checkpoint.weights import load_state_dict
from antiphon.engine.flow.cosyvoice2 import ConformerFlow
from antiphon.engine.flow.flow_matching import cosine_times, fixed_noise, plan_solver
from tests import golden

PLAN = plan_solver("euler", 10, 0.7)


def config() -> ConformerFlowConfig:
    return read_conformer_flow(load_document(golden.model_dir(2) / "cosyvoice2.yaml"))


@cache
def tiny() -> ConformerFlow:
    flow = ConformerFlow(config())
    flow.load_state_dict(load_state_dict(golden.model_dir(2) / "flow.pt"), strict=True)
    return flow.eval().requires_grad_(False)


@cache
def prompt() -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, mel and embedding of the golden prompt."""
    return (
        golden.array(2, "frontend", "zero_shot.speech_token").long(),
        golden.array(2, "frontend", "zero_shot.prompt_speech_feat"),
        golden.array(2, "frontend", "embedding"),
    )


def tokens() -> Tensor:
    return golden.array(2, "flow", "tokens").long()


def check(actual: Tensor, name: str) -> None:
    """Compare (batch, frames, mel) with a golden array of (batch, mel, frames)."""
    golden.assert_close(actual.transpose(1, 2), 2, "flow", name)


def test_encoder_and_speaker_are_the_reference_ones() -> None:
    flow = tiny()
    prompt_tokens, _, embedding = prompt()
    golden.assert_close(flow.speaker(embedding), 2, "flow", "spk")
    ids = torch.cat([prompt_tokens, tokens()], dim=1)
    embedded = flow.embed(ids)
    ahead = flow.encoder.look_ahead(embedded, None)
    golden.assert_close(ahead, 2, "flow", "offline.prelookahead")
    golden.assert_close(flow.encoder(embedded, None, chunked=False), 2, "flow", "offline.encoder")
    chunked = flow.encoder(embedded, None, chunked=True)
    golden.assert_close(chunked, 2, "flow", "streaming_final_reference.encoder")
    check(flow.plan_mel(ids, None, chunked=False), "offline.mu")


def test_a_streamed_call_plans_the_reference_mel() -> None:
    flow = tiny()
    prompt_tokens, _, _ = prompt()
    ids = torch.cat([prompt_tokens, tokens()[:, :52]], dim=1)
    known, context = ids[:, :-3], ids[:, -3:]
    ahead = flow.encoder.look_ahead(flow.embed(known), flow.embed(context))
    golden.assert_close(ahead, 2, "flow", "stream.0.prelookahead")
    check(flow.plan_mel(known, context, chunked=True), "stream.0.mu")


@pytest.mark.parametrize(("chunked", "name"), [(False, "full"), (True, "chunked")])
def test_estimator_is_the_reference_one(chunked: bool, name: str) -> None:
    flow = tiny()
    mu = golden.array(2, "flow", "offline.mu").transpose(1, 2)
    cond = golden.array(2, "flow", "offline.cond").transpose(1, 2)
    speaker = golden.array(2, "flow", "spk")
    noise = golden.array(2, "flow", "rand_noise_slice").transpose(1, 2)[:, : mu.shape[1]]
    velocity = flow.decoder.estimator(
        noise.expand(2, -1, -1),
        torch.cat([mu, torch.zeros_like(mu)]),
        torch.full((2,), 0.37),
        torch.cat([speaker, torch.zeros_like(speaker)]),
        torch.cat([cond, torch.zeros_like(cond)]),
        chunked=chunked,
    )
    check(velocity, f"estimator.out_{name}")


def test_noise_and_times_are_the_reference_ones() -> None:
    check(fixed_noise()[None, :640], "rand_noise_slice")
    golden.assert_close(cosine_times(10), 2, "flow", "t_span")


def test_whole_solutions_are_the_reference_ones() -> None:
    prompt_tokens, mel, embedding = prompt()
    arguments = (tokens(), prompt_tokens, mel, embedding, PLAN)
    check(tiny().solve_whole(*arguments, chunked=False), "offline.mel")
    check(tiny().solve_whole(*arguments, chunked=True), "streaming_final_reference.mel")


@pytest.mark.parametrize("call", [0, 1, 2])
def test_upstreams_schedule_gives_upstreams_mel(call: int) -> None:
    schedule = golden.notes(2)["flow_stream_calls"][call]
    prompt_tokens, mel, embedding = prompt()
    solved = tiny().solve_whole(
        tokens()[:, : schedule["n_tokens"]],
        prompt_tokens,
        mel,
        embedding,
        PLAN,
        chunked=schedule["streaming"],
        final=schedule["finalize"],
    )
    check(solved, f"stream.{call}.mel")


def test_full_size_keys_equal_the_manifest() -> None:
    manifest = json.loads(golden.golden_path("manifest/cosyvoice2.json").read_text())
    expected = {k: tuple(v["shape"]) for k, v in manifest["modules"]["flow"]["keys"].items()}

    tiny_config = config()
    full = replace(
        tiny_config,
        input_size=512,
        encoder=replace(
            tiny_config.encoder,
            input_size=512,
            output_size=512,
            attention_heads=8,
            linear_units=2048,
            num_blocks=6,
        ),
        estimator=replace(
            tiny_config.estimator,
            channels=(256,),
            attention_head_dim=64,
            n_blocks=4,
            num_mid_blocks=12,
            num_heads=8,
        ),
    )
    with torch.device("meta"):
        flow = ConformerFlow(full)
    assert {k: tuple(v.shape) for k, v in flow.state_dict().items()} == expected
