"""Conditional flow matching: from fixed noise to a mel along the estimator's velocities.

Sources: flow matching (arXiv 2210.02747), optimal-transport paths and classifier-free guidance as
in Matcha-TTS (arXiv 2309.03199) and CosyVoice (arXiv 2407.05407).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from antiphon.engine.checkpoint.config import CFMConfig, DiTConfig
from antiphon.engine.flow.dit import DiT

SolverName = Literal["euler", "midpoint"]
NOISE_FRAMES = 15_000
"""Length of the fixed noise: 300 s, as upstream draws it."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One call of the estimator.

    The velocity is taken at `time` and at `start + stage_dt·v_previous` (`stage_dt` is 0 for
    Euler and for the first half of a midpoint step); if `advance`, the step then moves by `dt`.
    """

    time: float
    dt: float
    stage_dt: float
    advance: bool


@dataclass(frozen=True, slots=True)
class SolverPlan:
    """The estimator calls of one solution, fixed before it starts."""

    evaluations: tuple[Evaluation, ...]
    cfg_rate: float

    @property
    def guidance_rows(self) -> int:
        """Rows of the estimator's batch for each voice: 1 without guidance, else 2."""
        return 1 if self.cfg_rate == 0.0 else 2


def cosine_times(steps: int) -> Tensor:
    """Times of a solution, (steps + 1,), denser near the noise: 1 - cos(pi/2 · i/steps)."""
    return 1 - torch.cos(torch.linspace(0, 1, steps + 1) * 0.5 * math.pi)


def plan_solver(solver: SolverName, steps: int, cfg_rate: float) -> SolverPlan:
    """Lay out `steps` solver steps on the cosine schedule.

    Times accumulate in float32 as upstream's do: each step starts where the last one arrived.
    """
    times = cosine_times(steps)
    time = times[0]
    evaluations: list[Evaluation] = []
    for step in range(steps):
        dt = times[step + 1] - time
        if solver == "midpoint":
            half = dt / 2
            evaluations.append(Evaluation(float(time), float(dt), 0.0, advance=False))
            evaluations.append(Evaluation(float(time + half), float(dt), float(half), advance=True))
        else:
            evaluations.append(Evaluation(float(time), float(dt), 0.0, advance=True))
        time = time + dt
    return SolverPlan(tuple(evaluations), cfg_rate)


def fixed_noise(channels: int = 80) -> Tensor:
    """The starting noise of every solution, (frames, channels): upstream's buffer, transposed.

    Upstream seeds the global generator with 0 and draws (1, 80, 15000); the same numbers are drawn
    here from a generator of our own. It is indexed by the frame's position in prompt + speech.
    """
    generator = torch.Generator().manual_seed(0)
    return torch.randn(1, channels, NOISE_FRAMES, generator=generator)[0].t().contiguous()


def noise_slice(noise: Tensor, start: int, stop: int) -> Tensor:
    """Frames `start` to `stop` of the fixed noise, which begins again after 300 s."""
    if stop <= noise.shape[0]:
        return noise[start:stop]
    positions = torch.arange(start, stop, device=noise.device) % noise.shape[0]
    return noise[positions]


def guide(velocity: Tensor, cfg_rate: float) -> Tensor:
    """Join (2, …) conditional and unconditional velocities into one (…)."""
    return (1.0 + cfg_rate) * velocity[0] - cfg_rate * velocity[1]


class ConditionalFlowMatching(nn.Module):
    """Holds the estimator under its official name and solves whole utterances with it."""

    def __init__(self, config: CFMConfig, estimator: DiTConfig, dropout: float = 0.0) -> None:
        super().__init__()
        self.config = config
        self.estimator = DiT(estimator, dropout)

    @torch.inference_mode()
    def solve(
        self,
        noise: Tensor,
        mu: Tensor,
        speaker: Tensor,
        cond: Tensor,
        plan: SolverPlan,
        *,
        chunked: bool,
    ) -> Tensor:
        """Integrate one utterance without caches, (1, frames, mel) in and out.

        The unconditional row sees the same noisy mel and zeros for all else.
        """
        start = noise
        velocity = torch.zeros_like(noise)
        for call in plan.evaluations:
            point = start + call.stage_dt * velocity if call.stage_dt else start
            velocity = self._velocity(point, mu, speaker, cond, call.time, plan, chunked)
            if call.advance:
                start = start + call.dt * velocity
        return start

    def _velocity(
        self,
        x: Tensor,
        mu: Tensor,
        speaker: Tensor,
        cond: Tensor,
        time: float,
        plan: SolverPlan,
        chunked: bool,
    ) -> Tensor:
        rows = plan.guidance_rows
        times = torch.full((rows,), time, device=x.device)
        if rows == 1:
            return cast(Tensor, self.estimator(x, mu, times, speaker, cond, chunked=chunked))
        both = self.estimator(
            x.expand(2, -1, -1),
            torch.cat([mu, torch.zeros_like(mu)]),
            times,
            torch.cat([speaker, torch.zeros_like(speaker)]),
            torch.cat([cond, torch.zeros_like(cond)]),
            chunked=chunked,
        )
        return guide(both, plan.cfg_rate)[None]
