"""The flow of CosyVoice 1 equals the golden arrays."""

from __future__ import annotations

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
from tests.engine.flow.unet_cases import PLAN, check, check_full_size, tokens, velocity, voice


def config() -> RegulatedFlowConfig:
    return read_regulated_flow(load_document(golden.model_dir(1) / "cosyvoice.yaml"))


@cache
def tiny() -> RegulatedFlow:
    flow = RegulatedFlow(config())
    flow.load_state_dict(load_state_dict(golden.model_dir(1) / "flow.pt"), strict=True)
    return flow.eval().requires_grad_(False)


def test_encoder_regulator_and_speaker_are_the_reference_ones() -> None:
    flow = tiny()
    prompt_tokens, mel, embedding = voice(1)
    golden.assert_close(flow.speaker(embedding), 1, "flow", "spk")
    ids = torch.cat([prompt_tokens, tokens(1)], dim=1)
    golden.assert_close(flow.encoder(flow.input_embedding(ids)), 1, "flow", "offline.encoder")
    golden.assert_close(flow.encode(ids), 1, "flow", "offline.encoder_proj")
    planned = flow.plan_mel(tokens(1), prompt_tokens, mel.shape[1], flow.frames(260))
    check(1, planned, "offline.mu")
    golden.assert_close(cosine_times(10), 1, "flow", "t_span")


def test_estimator_is_the_reference_one() -> None:
    drawn = golden.array(1, "flow", "offline.x").transpose(1, 2)
    check(1, velocity(1, tiny(), drawn), "estimator.out_full")


def noise(frames: int, seed: int) -> Tensor:
    """Noise of prompt and window, (1, frames, mel), as upstream draws it after seeding."""
    shape = (1, 80, voice(1)[1].shape[1] + frames)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).transpose(1, 2)


def test_a_whole_window_and_what_it_hands_over_are_the_reference_ones() -> None:
    drawn = noise(447, 4100)
    check(1, drawn, "offline.x")
    mel, after = tiny().solve_window(tokens(1), *voice(1), PLAN, drawn)
    check(1, mel, "offline.mel")
    handed = torch.stack([after.noise.transpose(1, 2), after.mu.transpose(1, 2)], dim=-1)
    golden.assert_close(handed, 1, "flow", "offline.flow_cache")


@pytest.mark.parametrize("length", [1, 2, 20, 40, 41, 45])
def test_windows_of_every_length_have_the_frames_their_tokens_last(length: int) -> None:
    flow = tiny()
    plan = plan_solver("euler", 1, 0.7)
    frames = flow.frames(120)
    mel, before = flow.solve_window(tokens(1)[:, :120], *voice(1), plan, noise(frames, 1))
    assert mel.shape[1] == frames
    frames = flow.frames(length)
    short = tokens(1)[:, :length]
    mel, _ = flow.solve_window(short, *voice(1), plan, noise(frames, 2), before)
    assert mel.shape[1] == frames
    assert torch.isfinite(mel).all()


def test_full_size_keys_equal_the_manifest() -> None:
    check_full_size(1, RegulatedFlow, config())
