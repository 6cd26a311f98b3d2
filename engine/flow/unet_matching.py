"""Flow matching with the U-Net estimator, call by call."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from antiphon.engine.checkpoint.unet_config import UNetConfig
from antiphon.engine.flow.flow_matching import SolverPlan, guide
from antiphon.engine.flow.unet import UNet
from antiphon.engine.flow.unet_layers import Memory


@dataclass(slots=True, eq=False)
class UNetSolution:
    """A mel under way from noise, one estimator call after the other."""

    plan: SolverPlan
    mu: Tensor
    """(1, frames, mel), like `cond`."""
    cond: Tensor
    speaker: Tensor
    """(1, mel)"""
    x: Tensor
    """(frames, mel) where the current step started."""
    velocity: Tensor
    """(frames, mel) of the last call."""
    call: int

    @property
    def frames(self) -> int:
        """Mel frames being solved."""
        return self.x.shape[0]

    @property
    def done(self) -> bool:
        """Whether every call was made; `x` is then the mel."""
        return self.call == len(self.plan.evaluations)

    @torch.inference_mode()
    def advance(self, estimator: UNet, memory: Memory | None, *, chunked: bool) -> None:
        """Make one call. The unconditional row sees the same noisy mel and zeros for all else."""
        current = self.plan.evaluations[self.call]
        point = self.x + current.stage_dt * self.velocity if current.stage_dt else self.x
        rows = self.plan.guidance_rows

        def guided(part: Tensor) -> Tensor:
            return part if rows == 1 else torch.cat([part, torch.zeros_like(part)])

        velocities = estimator(
            point.expand(rows, -1, -1),
            guided(self.mu),
            torch.full((rows,), current.time, device=self.x.device),
            guided(self.speaker),
            guided(self.cond),
            chunked=chunked,
            memory=memory,
        )
        self.velocity = velocities[0] if rows == 1 else guide(velocities, self.plan.cfg_rate)
        if current.advance:
            self.x = self.x + current.dt * self.velocity
        self.call += 1


class UNetFlowMatching(nn.Module):
    """Holds the estimator under its official name and solves with it."""

    def __init__(self, estimator: UNetConfig) -> None:
        super().__init__()
        self.estimator = UNet(estimator)

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
        """Integrate one utterance without caches, (1, frames, mel) in and out."""
        start = noise[0]
        solution = UNetSolution(plan, mu, cond, speaker, start, torch.zeros_like(start), 0)
        while not solution.done:
            solution.advance(self.estimator, None, chunked=chunked)
        return solution.x[None]
