"""Few-step student of the flow: three Euler steps without guidance in place of ten with it.

Progressive distillation (Salimans & Ho, arXiv 2202.00512) of the guided field (Meng et al.,
arXiv 2210.03142): on each interval of the three-step schedule the student's one velocity is the
chord of the teacher's three guided steps.
"""

import copy

import numpy as np
import torch
from torch import Tensor, nn

from antiphon.engine.flow.flow import Flow
from antiphon.engine.flow.flow_matching import cosine_times
from antiphon.training.loop import Draw, apply_gradients, matrices_and_rest
from antiphon.training.stages.flow import Batch, FlowStage, is_matrix

STEPS = 3
SUBSTEPS = 3


class StudentStage:
    """Mean squared distance to the teacher's chord."""

    def __init__(self, teacher: FlowStage, weights: dict[str, Tensor]) -> None:
        self.rows = teacher
        self._teacher: Flow = teacher._model
        self._teacher.load_state_dict(weights)
        self._teacher.eval().requires_grad_(False)
        self._model = copy.deepcopy(self._teacher).train().requires_grad_(True)
        self.guidance = teacher.config.decoder.inference_cfg_rate

    @property
    def model(self) -> nn.Module:
        """The student, which starts as a copy of its teacher."""
        return self._model

    def optimizers(self, peak_lr: float) -> list[torch.optim.Optimizer]:
        """As the flow's own."""
        return matrices_and_rest(self._model, is_matrix, peak_lr, peak_lr)

    def step(self, draw: Draw, optimizers: list[torch.optim.Optimizer]) -> dict[str, float]:
        """One batch at random intervals of the schedule."""
        batch = self.rows.batch(draw.numpy, self.rows.parts.train)
        loss = self._loss(batch, draw.torch)
        norm = apply_gradients(loss, self._model, optimizers, 1.0)
        return {"chord": float(loss.detach()), "gradient": norm}

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Distance on held-out sentences."""
        rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
        pool = self.rows.parts.validation
        losses = [float(self._loss(self.rows.batch(rng, pool), generator)) for _ in range(4)]
        mean = sum(losses) / len(losses)
        return {"chord": mean, "score": mean}

    def _loss(self, batch: Batch, generator: torch.Generator) -> Tensor:
        times = cosine_times(STEPS)
        which = torch.randint(0, STEPS, (len(batch.tokens),), generator=generator)
        begin, end = times[which], times[which + 1]
        noise = torch.randn(batch.mel.shape, generator=generator)
        at = begin[:, None, None]
        point = (1 - at) * noise + at * batch.mel
        goal = self._teach(batch, point, begin, end)
        chord = (goal - point) / (end - begin)[:, None, None]
        velocity = self._velocity(self._model, batch, point, begin, 1.0)
        error = (velocity - chord).square().mean(-1)
        return (error * batch.weight).sum() / batch.weight.sum()

    @torch.no_grad()
    def _teach(self, batch: Batch, point: Tensor, begin: Tensor, end: Tensor) -> Tensor:
        step = (end - begin) / SUBSTEPS
        for number in range(SUBSTEPS):
            now = begin + step * number
            guided = self._velocity(self._teacher, batch, point, now, 1.0)
            free = self._velocity(self._teacher, batch, point, now, 0.0)
            velocity = (1 + self.guidance) * guided - self.guidance * free
            point = point + velocity * step[:, None, None]
        return point

    def _velocity(
        self, flow: Flow, batch: Batch, point: Tensor, time: Tensor, condition: float
    ) -> Tensor:
        mu = flow.plan_mel(batch.tokens, mask=batch.token_mask)[:, : batch.mel.shape[1]]
        velocity: Tensor = flow.decoder.estimator(
            point,
            mu * condition,
            time,
            flow.speaker(batch.speaker) * condition,
            batch.cond * condition,
            mask=batch.frame_mask,
            chunked=batch.chunked,
        )
        return velocity
