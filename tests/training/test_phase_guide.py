"""The phase that the vocoder's early layers are shown."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from antiphon.training import sizes
from antiphon.training.data.corpus import Corpus
from antiphon.training.data.features import Mels
from antiphon.training.data.split import Split
from antiphon.training.loop import Draw
from antiphon.training.stages.phase_guide import PhaseGuide
from antiphon.training.stages.vocoder import PHASE_FIRST, VocoderStage


@pytest.fixture
def stage(corpus: Corpus, mels: Mels, parts: Split) -> VocoderStage:
    return VocoderStage(sizes.HIFT, corpus, mels, parts, batch=2, crop_tokens=8)


def draw(progress: float) -> Draw:
    return Draw(0, progress, np.random.default_rng(5), torch.Generator().manual_seed(5))


def test_columns_that_hold_the_phase_have_no_error() -> None:
    guide = PhaseGuide(sizes.HIFT)
    for head in guide.heads:
        assert isinstance(head, nn.Conv1d)
        nn.init.zeros_(head.weight)
        assert head.bias is not None
        nn.init.zeros_(head.bias)
        for i in range(head.out_channels):
            head.weight.data[i, i] = 1.0
    f0 = torch.full((1, 10), 130.0)
    cycles = torch.tensor([0.3], dtype=torch.float64)
    columns = []
    for rate, head in zip(guide.rates, guide.heads, strict=True):
        assert isinstance(head, nn.Conv1d)
        seconds = (torch.arange(10 * rate, dtype=torch.float64) + 0.5) / (50 * rate)
        turns = 0.3 + 130.0 * seconds
        order = torch.arange(1, head.out_channels // 2 + 1)[:, None]
        angle = 2 * math.pi * turns * order
        held = torch.zeros(1, head.in_channels, len(turns))
        held[0, : head.out_channels] = torch.cat([angle.sin(), angle.cos()]).float()
        columns.append(held)
    assert float(guide(columns, f0, cycles).detach()) < 1e-6
    assert float(guide(columns, f0 + 3.0, cycles).detach()) > 0.1
    silent = torch.zeros_like(f0)
    assert float(guide(columns, silent, cycles).detach()) == 0.0


def test_early_columns_are_those_of_the_whole_network(stage: VocoderStage) -> None:
    crops = stage.crops(draw(0.5))
    stage.render(crops)
    whole = [columns.detach() for columns in stage.generator.columns]
    excitation = stage.generator.m_source(crops.f0, crops.cycles, crops.noise)[0]
    early = stage.generator.early_columns(crops.mel, excitation)
    assert len(early) == 2
    for one, other in zip(early, whole, strict=False):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_only_the_phase_is_learned_at_first(stage: VocoderStage) -> None:
    last = stage.generator.conv_post.weight.detach().clone()
    optimizers = stage.optimizers(1e-3)
    figures = stage.step(draw(PHASE_FIRST / 2), optimizers)
    assert set(figures) == {"phase", "gradient"}
    assert torch.equal(stage.generator.conv_post.weight, last)
    figures = stage.step(draw(0.5), optimizers)
    assert {"phase", "mel", "complex"} <= set(figures)
    assert not torch.equal(stage.generator.conv_post.weight, last)


def test_phases_are_asked_for_where_the_corpus_ties_them(stage: VocoderStage) -> None:
    crops = stage.crops(draw(0.5))
    assert torch.equal(crops.tied > 0, crops.f0 > 0)
    made, wanted, tied = stage.render(crops)
    noise = torch.randn(made.shape, generator=torch.Generator().manual_seed(1)) * 0.05
    _, free = stage.loss(noise, wanted, torch.zeros_like(tied))
    _, bound = stage.loss(noise, wanted, torch.ones_like(tied))
    assert free["complex"] == 0.0
    assert bound["complex"] > 0.05
