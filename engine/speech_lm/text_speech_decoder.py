"""CosyVoice 1's speech LM, step by step.

Each step takes every running request on by one id, so that a short one does not wait for a long
one. Text is needed whole: the text encoder's output stands before all speech. A request whose text
arrives in pieces therefore waits for its end.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

import torch

from antiphon.engine.errors import AntiphonError, InvalidRequest, SynthesisFailed
from antiphon.engine.interface import FinishReason
from antiphon.engine.speech_lm.decoder import Outcome
from antiphon.engine.speech_lm.layout import SpeechTally
from antiphon.engine.speech_lm.request import SpeechLMRequest
from antiphon.engine.speech_lm.sampling import Draw, sample
from antiphon.engine.speech_lm.text_speech_lm import SequenceMemory, TextSpeechLM

MAX_AHEAD_TOKENS: Final = 500
"""Ten seconds of speech that nobody has taken: the request then pauses."""


class WholeText:
    """Text that is of no use before its end. Holds at most `limit` ids and one piece."""

    pending_text = 0
    """It never asks its source to wait: `limit` bounds it."""

    def __init__(self, limit: int) -> None:
        self.ids: tuple[int, ...] = ()
        self.ended = False
        self.limit = limit

    @property
    def too_long(self) -> bool:
        """Whether more ids came than a request may have."""
        return len(self.ids) > self.limit

    def push_text(self, ids: tuple[int, ...]) -> None:
        """Add ids; what is beyond the limit is not kept."""
        if not self.too_long:
            self.ids += ids

    def end_text(self) -> None:
        """No more text will come."""
        self.ended = True


@dataclass(slots=True, eq=False)
class TextSpeechJob:
    """One request. Belongs to the decoder's thread, except for `consumed`."""

    request: SpeechLMRequest
    sequence: WholeText
    seed: int
    memory: SequenceMemory
    tally: SpeechTally
    history: list[int] = field(default_factory=list)
    consumed: int = 0
    """Tokens taken by the receiver, who alone writes it."""

    @property
    def shortest(self) -> int:
        """Fewest speech tokens for its text."""
        return int(self.request.min_ratio * len(self.sequence.ids))

    @property
    def longest(self) -> int:
        """Most speech tokens for its text."""
        return int(self.request.max_ratio * len(self.sequence.ids))

    @property
    def paused(self) -> bool:
        """Whether the receiver is too far behind."""
        return len(self.history) - self.consumed >= MAX_AHEAD_TOKENS

    @property
    def can_go_on(self) -> bool:
        """Whether there is a step to take."""
        return (self.sequence.ended or self.sequence.too_long) and not self.paused


class TextSpeechDecoder:
    """Requests in the order of their arrival, `slots` of them at once. Not thread-safe."""

    def __init__(self, model: TextSpeechLM, *, slots: int, positions: int) -> None:
        self._model = model
        self._slots = slots
        self._positions = positions
        self._waiting: deque[TextSpeechJob] = deque()
        self._active: list[TextSpeechJob] = []

    def add(self, job: TextSpeechJob) -> None:
        """Queue a request; it starts with the next step if a slot is free."""
        self._waiting.append(job)

    def cancel(self, job: TextSpeechJob) -> None:
        """Forget a request. Idempotent."""
        for jobs in (self._waiting, self._active):
            if job in jobs:
                jobs.remove(job)

    def abandon(self) -> list[TextSpeechJob]:
        """Forget everything and return what was there."""
        jobs = [*self._active, *self._waiting]
        self._active.clear()
        self._waiting.clear()
        return jobs

    def run_once(self) -> tuple[list[tuple[TextSpeechJob, Outcome]], bool]:
        """Take one step; return what came out of it, and whether anything was computed."""
        # Those whose text is still being written hold no slot.
        for job in [job for job in self._waiting if job.can_go_on]:
            if len(self._active) < self._slots:
                self._waiting.remove(job)
                self._active.append(job)
        outcomes = [(job, self._step(job)) for job in self._active if job.can_go_on]
        for job, outcome in outcomes:
            if not isinstance(outcome, int):
                self._active.remove(job)
        return outcomes, bool(outcomes)

    def _step(self, job: TextSpeechJob) -> Outcome:
        try:
            return self._next(job)
        except AntiphonError as error:
            return error
        except Exception as error:  # A fault in the model must not take other requests with it.
            return SynthesisFailed(f"The speech LM failed ({type(error).__name__}).")

    def _next(self, job: TextSpeechJob) -> Outcome:
        model, count = self._model, len(job.history)
        if job.sequence.too_long:
            raise InvalidRequest(
                f"Prompt and text take more positions than the {self._positions} that one sequence "
                "may hold.",
                field="text",
                limit=self._positions,
            )
        if count >= job.longest or job.memory.length >= self._positions:
            return FinishReason.LENGTH
        if job.history:
            logits = model.step(model.embed_speech(job.history[-1]), job.memory)
        else:
            logits = model.start(model.prefix(job.request.prompt, job.sequence.ids), job.memory)
        if not bool(torch.isfinite(logits).all()):
            return SynthesisFailed("The speech LM produced logits that are not finite.")
        if count < job.shortest:
            logits = logits.clone()
            logits[:, model.eos] = -torch.inf
        draw = Draw(job.request.sampling, job.history, job.seed, count)
        token = sample(logits.float(), [draw])[0]
        if token == model.eos:
            return FinishReason.STOP
        job.history.append(token)
        job.tally.add(token)
        return FinishReason.TOKEN_LOOP if job.tally.looping else token
