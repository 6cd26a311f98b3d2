"""Flow matching with the U-Net estimator."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from antiphon.engine.checkpoint.unet_config import UNetConfig
from antiphon.engine.flow.flow_matching import SolverPlan, guide
from antiphon.engine.flow.unet import UNet


class UNetFlowMatching(nn.Module):
    """Holds the estimator under its official name and solves with it."""

    def __init__(self, estimator: UNetConfig) -> None:
        super().__init__()
        self.estimator = UNet(estimator)

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
