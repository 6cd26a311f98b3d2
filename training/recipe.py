"""All numbers of a training run in one value; its hash goes into the checkpoint."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from antiphon.training.data.make import CorpusPlan
from antiphon.training.loop import LoopPlan
from antiphon.training.stages.flow import FlowPlan
from antiphon.training.stages.lm import LMPlan

PLANS: Final[Mapping[str, LoopPlan]] = {
    "xvector": LoopPlan(steps=1500, peak_lr=2e-3, eval_every=125, ema=0.99, patience=5),
    "tokenizer": LoopPlan(steps=2000, peak_lr=1.5e-3, ema=0.99, patience=6),
    "lm": LoopPlan(steps=6000, peak_lr=3e-3, eval_every=200, ema=0.99, patience=8),
    "f0": LoopPlan(steps=1000, peak_lr=2e-3, eval_every=100, ema=0.98, patience=8),
    "flow": LoopPlan(steps=10000, peak_lr=2.5e-3, warmup=40, ema=0.995, patience=20),
    "vocoder": LoopPlan(steps=8500, peak_lr=2e-3, warmup=40, ema=0.995),
    "adversarial": LoopPlan(steps=6000, peak_lr=5e-4, warmup=100, ema=0.998),
    "student": LoopPlan(steps=3000, peak_lr=8e-4, warmup=40, ema=0.99),
}
"""Stages in the order in which they run."""

CODES: Final = CorpusPlan(
    utterances=24000,
    house_share=1.0,
    invented_share=0.15,
    blended_share=0.4,
    sound=False,
    shard_size=500,
    seed=1007,
)
"""What only the speech LM learns from; its codes carry no timbre, so no virtual speakers."""

DATA_SHARE: Final = 0.06
SHARES: Final[Mapping[str, float]] = {
    "xvector": 0.02,
    "tokenizer": 0.04,
    "lm": 0.20,
    "f0": 0.02,
    "flow": 0.26,
    "vocoder": 0.22,
    "adversarial": 0.12,
    "student": 0.06,
}
"""Share of a time budget that each stage may take; the rest is for the data."""


@dataclass(frozen=True)
class Recipe:
    """Plans of the corpus and of every stage."""

    corpus: CorpusPlan = field(default_factory=CorpusPlan)
    codes: CorpusPlan = CODES
    flow_rows: FlowPlan = field(default_factory=FlowPlan)
    lm_rows: LMPlan = field(default_factory=LMPlan)
    stages: Mapping[str, LoopPlan] = field(default_factory=lambda: dict(PLANS))


def within(recipe: Recipe, seconds: float) -> Recipe:
    """The recipe with every stage bounded by its share of `seconds`.

    A stage then anneals its learning rate over its time, however many steps that allows.
    """
    stages = {
        name: for_seconds(plan, seconds * SHARES[name]) for name, plan in recipe.stages.items()
    }
    return replace(recipe, stages=stages)


def for_seconds(plan: LoopPlan, seconds: float) -> LoopPlan:
    """A plan bounded by time instead of steps."""
    return replace(plan, steps=10**9, budget_s=seconds)
