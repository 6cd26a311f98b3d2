"""The flow of CosyVoice 1 equals the golden arrays."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor

from antiphon.engine.checkpoint.document import load_document
from antiphon.engine.checkpoint.unet_config import RegulatedFlowConfig
from antiphon.engine.checkpoint.unet_reader import read_regulated_flow
from antiphon.engine.checkpoint.weights import load_state_dict
from antiphon.engine.flow.cosyvoice1 import RegulatedFlow
from antiphon.engine.flow.flow_matching import cosine_times, plan_solver
from tests import golden

PLAN = plan_solver("euler", 10, 0.7)


def config() -> RegulatedFlowConfig:
    return read_regulated_flow(load_document(golden.model_dir(1) / "cosyvoice.yaml"))


@cache
def tiny() -> RegulatedFlow:
    flow = RegulatedFlow(config())
    flow.load_state_dict(load_state_dict(golden.model_dir(1) / "flow.pt"), strict=True)
    return flow.eval().requires_grad_(False)


@cache
def prompt() -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, mel (upstream's, of the wrong rate) and embedding of the golden prompt."""
    return (
        golden.array(1, "frontend", "zero_shot.speech_token").long(),
        golden.array(1, "frontend", "zero_shot.prompt_speech_feat"),
        golden.array(1, "frontend", "embedding"),
    )


def tokens() -> Tensor:
    return golden.array(1, "flow", "tokens").long()


def check(actual: Tensor, name: str) -> None:
    """Compare (batch, frames, mel) with a golden array of (batch, mel, frames)."""
    golden.assert_close(actual.transpose(1, 2), 1, "flow", name)


def test_encoder_regulator_and_speaker_are_the_reference_ones() -> None:
    flow = tiny()
    prompt_tokens, mel, embedding = prompt()
    golden.assert_close(flow.speaker(embedding), 1, "flow", "spk")
    ids = torch.cat([prompt_tokens, tokens()], dim=1)
    golden.assert_close(flow.encoder(flow.input_embedding(ids)), 1, "flow", "offline.encoder")
    golden.assert_close(flow.encode(ids), 1, "flow", "offline.encoder_proj")
    planned = flow.plan_mel(tokens(), prompt_tokens, mel.shape[1], flow.frames(260))
    check(planned, "offline.mu")
    golden.assert_close(cosine_times(10), 1, "flow", "t_span")


def test_estimator_is_the_reference_one() -> None:
    noise, mu, cond = (
        golden.array(1, "flow", f"offline.{name}").transpose(1, 2) for name in ("x", "mu", "cond")
    )
    speaker = golden.array(1, "flow", "spk")
    velocity = tiny().decoder.estimator(
        noise.expand(2, -1, -1),
        torch.cat([mu, torch.zeros_like(mu)]),
        torch.full((2,), 0.37),
        torch.cat([speaker, torch.zeros_like(speaker)]),
        torch.cat([cond, torch.zeros_like(cond)]),
    )
    check(velocity, "estimator.out_full")


def noise(frames: int, seed: int) -> Tensor:
    """Noise of prompt and window, (1, frames, mel), as upstream draws it after seeding."""
    shape = (1, 80, prompt()[1].shape[1] + frames)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).transpose(1, 2)


def test_a_whole_window_and_what_it_hands_over_are_the_reference_ones() -> None:
    drawn = noise(447, 4100)
    check(drawn, "offline.x")
    mel, after = tiny().solve_window(tokens(), *prompt(), PLAN, drawn)
    check(mel, "offline.mel")
    handed = torch.stack([after.noise.transpose(1, 2), after.mu.transpose(1, 2)], dim=-1)
    golden.assert_close(handed, 1, "flow", "offline.flow_cache")


@pytest.mark.parametrize("length", [1, 2, 20, 40, 41, 45])
def test_windows_of_every_length_have_the_frames_their_tokens_last(length: int) -> None:
    flow = tiny()
    plan = plan_solver("euler", 1, 0.7)
    frames = flow.frames(120)
    mel, before = flow.solve_window(tokens()[:, :120], *prompt(), plan, noise(frames, 1))
    assert mel.shape[1] == frames
    frames = flow.frames(length)
    short = tokens()[:, :length]
    mel, _ = flow.solve_window(short, *prompt(), plan, noise(frames, 2), before)
    assert mel.shape[1] == frames
    assert torch.isfinite(mel).all()


def test_full_size_keys_equal_the_manifest() -> None:
    manifest = json.loads(golden.golden_path("manifest/cosyvoice1.json").read_text())
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
            channels=(256, 256),
            attention_head_dim=64,
            n_blocks=4,
            num_mid_blocks=12,
            num_heads=8,
        ),
    )
    with torch.device("meta"):
        flow = RegulatedFlow(full)
    assert {k: tuple(v.shape) for k, v in flow.state_dict().items()} == expected
