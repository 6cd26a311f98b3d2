"""Continuous batching without threads: one `run_once` is one step of all sequences that can go on.

A sequence joins at the next step after it is added, waits for text without holding the others up,
and its slot is free again in the step in which it ends or is cancelled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from antiphon.engine.errors import AntiphonError, SynthesisFailed
from antiphon.engine.interface import FinishReason
from antiphon.engine.speech_lm.batch_plan import Row
from antiphon.engine.speech_lm.layout import Constraint, End, Sample, Sequence, Wait
from antiphon.engine.speech_lm.qwen2 import KVCache, Qwen2SpeechLM
from antiphon.engine.speech_lm.request import Sampling
from antiphon.engine.speech_lm.sampling import ConstraintMasks, Draw, sample

Outcome = int | FinishReason | AntiphonError
"""A speech token, or why there are no more."""
Pick = Callable[[Tensor, list[Draw]], list[int]]


@dataclass(eq=False, slots=True)
class Job:
    """One sequence in the decoder. Belongs to the decoder's thread, except for `consumed`."""

    sequence: Sequence
    sampling: Sampling
    seed: int
    max_ahead: int
    """Tokens that may wait to be taken before the sequence pauses."""
    consumed: int = 0
    """Tokens taken by the receiver, who alone writes it."""
    delivered: int = 0
    slot: int = -1
    length: int = 0
    draws: int = 0
    feed: deque[int] = field(default_factory=deque)
    """Ids that are still to be fed."""
    constraint: Constraint | None = None
    """Set while a sample is due after the feed."""

    @property
    def paused(self) -> bool:
        """Whether the receiver is too far behind."""
        return self.delivered - self.consumed >= self.max_ahead


class Decoder:
    """Slots of one cache and the sequences in them. Not thread-safe."""

    def __init__(
        self,
        model: Qwen2SpeechLM,
        *,
        slots: int,
        positions: int,
        prefill_positions: int,
        dtype: torch.dtype = torch.float32,
        pick: Pick = sample,
    ) -> None:
        """Reserve the cache.

        Args:
            model: the network.
            slots: sequences that run at once; further ones wait in order of arrival.
            positions: ids that one sequence may hold.
            prefill_positions: most ids of prompts and text blocks in one step: larger prefills
                faster, smaller lets the running sequences speak on meanwhile.
            dtype: of the cache.
            pick: the sampler; replaced by scripts in tests.
        """
        self._model = model
        self._pick = pick
        self._cache = KVCache.allocate(
            model.config.backbone, slots, positions, dtype, str(model.device)
        )
        self._masks = ConstraintMasks(model.vocabulary, model.device)
        self._positions = positions
        self._prefill_positions = prefill_positions
        self._free = list(range(slots))
        self._active: list[Job] = []
        self._waiting: deque[Job] = deque()
        self._outcomes: list[tuple[Job, Outcome]] = []

    @property
    def load(self) -> int:
        """Sequences in slots and in the queue."""
        return len(self._active) + len(self._waiting)

    def add(self, job: Job) -> None:
        """Queue a sequence; it starts with the next step if a slot is free."""
        self._waiting.append(job)

    def cancel(self, job: Job) -> None:
        """Forget a sequence and free its slot. Idempotent."""
        if job in self._waiting:
            self._waiting.remove(job)
        elif job in self._active:
            self._active.remove(job)
            self._release(job)

    def abandon(self) -> list[Job]:
        """Forget everything and return what was there."""
        jobs = [*self._active, *self._waiting]
        for job in jobs:
            self.cancel(job)
        return jobs

    def run_once(self) -> tuple[list[tuple[Job, Outcome]], bool]:
        """Take one step; return what came out of it, and whether anything was computed."""
        self._admit()
        for job in tuple(self._active):
            self._advance(job)
        batch = self._batch()
        if batch:
            self._compute(batch)
        outcomes, self._outcomes = self._outcomes, []
        return outcomes, bool(batch)

    def _admit(self) -> None:
        while self._waiting and self._free:
            job = self._waiting.popleft()
            # The lowest free slot keeps the used ones together: see `BatchPlan`.
            job.slot = min(self._free)
            self._free.remove(job.slot)
            self._active.append(job)

    def _release(self, job: Job) -> None:
        self._free.append(job.slot)
        job.slot = -1

    def _finish(self, job: Job, outcome: FinishReason | AntiphonError) -> None:
        self.cancel(job)
        self._outcomes.append((job, outcome))

    def _advance(self, job: Job) -> None:
        if job.constraint is not None or job.paused:
            return
        step = job.sequence.advance()
        if isinstance(step, End):
            self._finish(job, step.reason)
            return
        job.feed.extend(step.inputs)
        if isinstance(step, Sample):
            job.constraint = step.constraint
        if job.length + len(job.feed) > self._positions:
            self._finish(job, FinishReason.LENGTH)
        assert isinstance(step, Wait) or job.feed, "a sample needs an input"

    def _batch(self) -> list[tuple[Job, Row]]:
        room = self._prefill_positions
        batch = []
        for job in self._active:
            count = len(job.feed)
            if count > 1:
                count = min(count, room)
                room -= count
            if count:
                ids = [job.feed.popleft() for _ in range(count)]
                batch.append((job, Row(job.slot, job.length, ids)))
                job.length += count
        return batch

    def _compute(self, batch: list[tuple[Job, Row]]) -> None:
        logits = self._model.step(self._cache, [row for _, row in batch])
        due = [i for i, (job, _) in enumerate(batch) if job.constraint is not None and not job.feed]
        if not due:
            return
        if len(due) < len(batch):
            logits = logits[due]
        jobs = [batch[i][0] for i in due]
        finite = logits.sum(-1).isfinite().tolist()
        self._masks.apply(logits, [job.constraint for job in jobs if job.constraint is not None])
        draws = [Draw(j.sampling, j.sequence.history, j.seed, j.draws) for j in jobs]
        for job, token, fine in zip(jobs, self._pick(logits, draws), finite, strict=True):
            if fine:
                self._accept(job, token)
            else:
                self._finish(job, SynthesisFailed("The speech LM computed a non-finite value."))

    def _accept(self, job: Job, token: int) -> None:
        job.constraint = None
        job.draws += 1
        try:
            heard = job.sequence.accept(token)
        except AntiphonError as error:
            self._finish(job, error)
            return
        if heard is not None:
            job.delivered += 1
            self._outcomes.append((job, heard))
