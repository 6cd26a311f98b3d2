"""The training loop every stage runs in: resumable, watched, bounded by steps or by time.

Nothing random outlives a step: batch `n` is drawn from generators seeded with the stage's seed and
`n`. A run killed anywhere and started again goes on exactly as if it had not been killed, from its
last checkpoint, which is replaced in one move.
"""

import json
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from antiphon.training.curves import draw_curves
from antiphon.training.muon import Muon


@dataclass(frozen=True)
class LoopPlan:
    """How long and how fast a stage learns.

    The learning rate rises over `warmup` steps and then falls along a half cosine to zero at the
    end, which is `steps`, or `budget_s` seconds of training if that is given.
    """

    steps: int
    peak_lr: float
    warmup: int = 50
    budget_s: float | None = None
    eval_every: int = 250
    save_every: int = 100
    patience: int = 0
    """Evaluations without a better score after which the stage stops; 0 for never."""
    clip: float = 1.0
    ema: float = 0.998
    """Decay of the averaged weights, which are what is evaluated and kept."""
    seed: int = 1


@dataclass(frozen=True)
class Draw:
    """Randomness of one step, the same whenever that step is run."""

    step: int
    progress: float
    """0 at the first step, 1 at the end of the schedule."""
    numpy: np.random.Generator
    torch: torch.Generator


class Stage(Protocol):
    """What a stage brings to the loop."""

    @property
    def model(self) -> nn.Module:
        """Everything with weights to learn."""

    def optimizers(self, peak_lr: float) -> list[torch.optim.Optimizer]:
        """Optimizers whose groups' `lr` is the peak; the loop scales it."""

    def step(self, draw: Draw, optimizers: list[torch.optim.Optimizer]) -> dict[str, float]:
        """Learn from one batch with the given learning rates; figures to average and plot."""

    def evaluate(self) -> dict[str, float]:
        """Figures on held-out data; `score` (lower is better) decides what is kept."""


@dataclass
class _Progress:
    step: int = 0
    seconds: float = 0.0
    best: float = math.inf
    stale: int = 0
    history: list[dict[str, float]] | None = None


class Loop:
    """Runs one stage in one folder."""

    def __init__(self, stage: Stage, plan: LoopPlan, folder: Path) -> None:
        self.stage = stage
        self.plan = plan
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.optimizers = stage.optimizers(plan.peak_lr)
        self.averaged = {k: v.detach().clone() for k, v in stage.model.state_dict().items()}
        self.progress = _Progress(history=[])
        self._sums: dict[str, float] = {}
        self._count = 0
        self._resume()

    @property
    def best_path(self) -> Path:
        """Averaged weights of the best evaluation."""
        return self.folder / "best.pt"

    def run(self, stop_after: int | None = None) -> dict[str, float]:
        """Train to the end of the plan (or `stop_after` steps from here); the last figures."""
        done, last = 0, {}
        while not self._finished() and (stop_after is None or done < stop_after):
            started = time.perf_counter()
            self._learn()
            self.progress.seconds += time.perf_counter() - started
            self.progress.step += 1
            done += 1
            finished = self._finished()
            if self.progress.step % self.plan.eval_every == 0 or finished:
                last = self._evaluate()
            if self.progress.step % self.plan.save_every == 0 or finished:
                self.save()
        return last

    def _learn(self) -> None:
        step = self.progress.step
        seed = (self.plan.seed, step)
        draw = Draw(
            step,
            self._fraction(),
            np.random.default_rng(seed),
            torch.Generator().manual_seed(self.plan.seed * 1_000_003 + step),
        )
        scale = self._rate(step)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group.setdefault("peak", group["lr"])
                group["lr"] = group["peak"] * scale
        figures = self.stage.step(draw, self.optimizers)
        for name, value in figures.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        self._count += 1
        decay = min(self.plan.ema, (1 + step) / (10 + step))
        with torch.no_grad():
            for name, value in self.stage.model.state_dict().items():
                kept = self.averaged[name]
                if value.dtype.is_floating_point:
                    kept.lerp_(value, 1 - decay)
                else:
                    kept.copy_(value)

    def _fraction(self) -> float:
        if self.plan.budget_s is not None:
            return min(1.0, self.progress.seconds / self.plan.budget_s)
        return min(1.0, self.progress.step / self.plan.steps)

    def _rate(self, step: int) -> float:
        warm = min(1.0, (step + 1) / self.plan.warmup)
        return warm * (0.5 + 0.5 * math.cos(math.pi * self._fraction())) + 1e-4

    def _finished(self) -> bool:
        stale = self.plan.patience > 0 and self.progress.stale >= self.plan.patience
        spent = self.plan.budget_s is not None and self.progress.seconds >= self.plan.budget_s
        return self.progress.step >= self.plan.steps or spent or stale

    def _evaluate(self) -> dict[str, float]:
        figures = {f"train {k}": v / self._count for k, v in self._sums.items()}
        self._sums, self._count = {}, 0
        with self._averaged_weights():
            self.stage.model.eval()
            figures |= self.stage.evaluate()
            self.stage.model.train()
        progress = self.progress
        score = figures["score"]
        if score < progress.best:
            progress.best, progress.stale = score, 0
            _save(self.averaged, self.best_path)
        else:
            progress.stale += 1
        assert progress.history is not None
        progress.history.append({"step": progress.step, "seconds": progress.seconds, **figures})
        (self.folder / "history.json").write_text(json.dumps(progress.history, indent=1))
        draw_curves(progress.history, self.folder / "curves.png")
        shown = "  ".join(f"{k} {v:.4f}" for k, v in figures.items())
        print(f"step {progress.step}  {progress.seconds:.0f} s  {shown}", flush=True)
        return figures

    def _averaged_weights(self) -> "_Swap":
        return _Swap(self.stage.model, self.averaged)

    def save(self) -> None:
        """Write the checkpoint in one move."""
        state = {
            "model": self.stage.model.state_dict(),
            "averaged": self.averaged,
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "progress": vars(self.progress),
            "sums": self._sums,
            "count": self._count,
        }
        _save(state, self.folder / "state.pt")

    def _resume(self) -> None:
        path = self.folder / "state.pt"
        if not path.exists():
            return
        state = torch.load(path, weights_only=True)
        self.stage.model.load_state_dict(state["model"])
        self.averaged = state["averaged"]
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.progress = _Progress(**state["progress"])
        self._sums, self._count = state["sums"], state["count"]


class _Swap:
    """The averaged weights in the model for as long as the context lasts."""

    def __init__(self, model: nn.Module, weights: Mapping[str, Tensor]) -> None:
        self.model, self.weights = model, weights

    def __enter__(self) -> None:
        self.own = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
        self.model.load_state_dict(self.weights)

    def __exit__(self, *_: object) -> None:
        self.model.load_state_dict(self.own)


def _save(state: Any, path: Path) -> None:
    temporary = path.with_suffix(".part")
    torch.save(state, temporary)
    os.replace(temporary, path)


def apply_gradients(
    loss: Tensor, model: nn.Module, optimizers: list[torch.optim.Optimizer], clip: float
) -> float:
    """One backward pass and update; returns the gradient's norm before clipping.

    A step whose gradient is not finite is skipped, so that one bad batch costs one step.
    """
    for optimizer in optimizers:
        optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    norm = float(nn.utils.clip_grad_norm_(model.parameters(), clip))
    if math.isfinite(norm):
        for optimizer in optimizers:
            optimizer.step()
    return norm


def matrices_and_rest(
    model: nn.Module, is_matrix: Callable[[str, Tensor], bool], peak_lr: float, matrix_lr: float
) -> list[torch.optim.Optimizer]:
    """Muon for the hidden matrices (arXiv 2502.16982), AdamW for everything else."""
    matrices: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            (matrices if is_matrix(name, weight) else rest).append(weight)
    adam = torch.optim.AdamW(rest, lr=peak_lr, betas=(0.9, 0.98), weight_decay=0.0, foreach=True)
    if not matrices:
        return [adam]
    muon = Muon(matrices, lr=matrix_lr)
    return [muon, adam]
