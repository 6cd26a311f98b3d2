"""Repetition-aware sampling against exact distributions."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from antiphon.engine.speech_lm.request import Sampling
from antiphon.engine.speech_lm.sampling import Draw, ras_distribution, sample, uniforms
from tests import golden

DRAWS = 4_000


def ras_cases() -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads(golden.golden_path("common/ras.json").read_text())[
        "cases"
    ]
    return loaded


def sampling_of(case: dict[str, Any]) -> Sampling:
    return Sampling(case["top_p"], case["top_k"], case["win_size"], case["tau_r"])


@pytest.mark.parametrize("case", ras_cases(), ids=lambda case: case["name"])
def test_the_distribution_equals_the_reference(case: dict[str, Any]) -> None:
    arrays = load_file(golden.golden_path("common/ras.safetensors"))
    exact = ras_distribution(arrays[f"{case['name']}.logp"], case["history"], sampling_of(case))
    expected = arrays[f"{case['name']}.final_prob"]
    assert (exact - expected).abs().max() < 1e-12


@pytest.mark.parametrize("case", ras_cases(), ids=lambda case: case["name"])
def test_draws_follow_the_distribution(case: dict[str, Any]) -> None:
    """Pearson's chi-square over ids that are expected at least five times, pooled rest."""
    arrays = load_file(golden.golden_path("common/ras.safetensors"))
    logp, probability = (arrays[f"{case['name']}.{what}"] for what in ("logp", "final_prob"))
    count = DRAWS if len(probability) < 1000 else DRAWS // 5
    draws = [Draw(sampling_of(case), case["history"], seed, 3) for seed in range(count)]
    found = torch.bincount(
        torch.tensor(sample(logp.expand(count, -1), draws)), minlength=len(probability)
    )
    assert not found[probability == 0].any()
    expected = probability * count
    common = expected >= 5
    bins_found = torch.cat([found[common].double(), found[~common].sum()[None].double()])
    bins_expected = torch.cat([expected[common], expected[~common].sum()[None]])
    used = bins_expected > 0
    difference = (bins_found - bins_expected)[used]
    statistic = float((difference**2 / bins_expected[used]).sum())
    freedom = int(used.sum()) - 1
    # Mean k, variance 2k: five standard deviations are beyond one in a million here.
    assert statistic <= freedom + 5 * (2 * max(freedom, 1)) ** 0.5


def test_a_row_is_drawn_the_same_whoever_shares_the_batch() -> None:
    logits = torch.randn(6, 300, generator=torch.Generator().manual_seed(1))
    settings = [Sampling(0.8, 25, 10, 0.1), Sampling(0.9, 10, 10, 0.8), Sampling(1, 1, 1, 1)]
    draws = [Draw(settings[i % 3], [1, 2, 3], seed=i, step=7 + i) for i in range(6)]
    alone = [sample(logits[i : i + 1], [draws[i]])[0] for i in range(6)]
    assert sample(logits, draws) == alone


def test_greedy_rows_and_drawn_rows_mix() -> None:
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(2))
    greedy = Draw(Sampling(0.8, 25, 10, 0.1, greedy=True), [], 0, 0)
    drawn = Draw(Sampling(0.8, 25, 10, 0.1), [], 5, 0)
    found = sample(logits, [greedy, drawn, greedy, drawn])
    assert found[0] == int(logits[0].argmax())
    assert found[2] == int(logits[2].argmax())
    assert found[1] == sample(logits[1:2], [drawn])[0]


def test_uniform_numbers_are_uniform_and_differ_by_seed_step_and_draw() -> None:
    seeds, zeros = np.arange(400, dtype=np.uint64), np.zeros(400, np.uint64)
    numbers = uniforms(seeds, zeros, draws=50)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < 0.01
    assert len(set(numbers.flatten().tolist())) == numbers.size
    assert not (uniforms(seeds, zeros) == uniforms(seeds, zeros + np.uint64(1))).any()
