"""CosyVoice 1's speech LM as a backend: one worker thread, an asyncio front.

The worker takes one step of each request in turn, so that a short one does not wait for a long one.
Text is needed whole: the text encoder's output stands before all speech. A request whose text
arrives in pieces therefore waits for its end.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

import torch

from antiphon.engine.checkpoint import Checkpoint
from antiphon.engine.checkpoint.weights import load_module
from antiphon.engine.errors import AntiphonError, InvalidRequest, Overloaded, SynthesisFailed
from antiphon.engine.interface import FinishReason
from antiphon.engine.speech_lm.generation import InProcess, call_in
from antiphon.engine.speech_lm.layout import MAX_LOOP_TOKENS, SpeechTally
from antiphon.engine.speech_lm.request import SpeechLMRequest
from antiphon.engine.speech_lm.sampling import Draw, sample
from antiphon.engine.speech_lm.text_speech_lm import SequenceMemory, TextSpeechLM

MAX_AHEAD_TOKENS: Final = 500
"""Ten seconds of speech that nobody has taken: the request then pauses."""
RETRY_AFTER_S: Final = 1.0

Outcome = int | FinishReason | AntiphonError


@dataclass(slots=True, eq=False)
class _Job:
    """One request on the worker."""

    generation: TextSpeechGeneration
    request: SpeechLMRequest
    text: tuple[int, ...]
    seed: int
    memory: SequenceMemory
    tally: SpeechTally
    history: list[int] = field(default_factory=list)
    consumed: int = 0
    cancelled: bool = False

    @property
    def shortest(self) -> int:
        return int(self.request.min_ratio * len(self.text))

    @property
    def longest(self) -> int:
        return int(self.request.max_ratio * len(self.text))

    @property
    def paused(self) -> bool:
        return len(self.history) - self.consumed >= MAX_AHEAD_TOKENS


class TorchTextSpeechLM(InProcess):
    """`SpeechLM` for version 1. One instance serves all sessions of a process."""

    def __init__(
        self, model: TextSpeechLM, *, slots: int = 8, max_waiting: int = 16, positions: int = 4096
    ) -> None:
        """Serve `slots` requests at once; `max_waiting` more queue before one is refused.

        `positions` bounds text, prompt and speech of one request together.
        """
        self._model = model
        self._slots = slots
        self._capacity = slots + max_waiting
        self._positions = positions
        self._reserved = 0
        self._waiting: deque[_Job] = deque()
        self._active: list[_Job] = []
        self._wake = threading.Condition()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="speech-lm-1", daemon=True)
        self._thread.start()

    @classmethod
    def load(
        cls,
        checkpoint: Checkpoint,
        *,
        slots: int = 8,
        max_waiting: int = 16,
        device: torch.device | str = "cpu",
    ) -> TorchTextSpeechLM:
        """Load the speech LM of a checkpoint of version 1.

        Raises:
            CheckpointError: weights that do not fit the configuration.
        """
        model = TextSpeechLM(checkpoint.text_speech_lm_config)
        load_module(model, checkpoint.lm_state_dict(), "llm.pt")
        model.to(device).eval().requires_grad_(False)
        return cls(model, slots=slots, max_waiting=max_waiting)

    @property
    def load_now(self) -> int:
        """Requests that run or wait for a slot."""
        return self._reserved

    def generate(self, request: SpeechLMRequest) -> TextSpeechGeneration:
        """Start a request; see `SpeechLM.generate`.

        The first `__anext__` raises `Overloaded` when slots and queue are full, `InvalidRequest`
        when the request cannot be.
        """
        return TextSpeechGeneration(self, request)

    async def close(self) -> None:
        """End the worker; what runs ends with `SynthesisFailed`. Idempotent."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        await asyncio.to_thread(self._thread.join)

    # Called by generations, on their event loop.

    def reserve(self) -> None:
        """Take a place.

        Raises:
            Overloaded: all are taken.
            SynthesisFailed: the backend is closed.
        """
        if self._closing:
            raise SynthesisFailed("The speech LM is closed.")
        if self._reserved >= self._capacity:
            raise Overloaded(
                "All places of the speech LM are taken.",
                retry_after_s=RETRY_AFTER_S,
                limit=self._capacity,
            )
        self._reserved += 1

    def release(self) -> None:
        """Give a place back."""
        self._reserved -= 1

    def submit(
        self, generation: TextSpeechGeneration, request: SpeechLMRequest, text: tuple[int, ...]
    ) -> _Job:
        """Queue a request whose text is whole.

        Raises:
            InvalidRequest: ids out of range, or more than one sequence may hold.
        """
        self._check(request, text)
        seed = request.sampling.seed
        job = _Job(
            generation,
            request,
            text,
            secrets.randbits(63) if seed is None else seed,
            SequenceMemory(self._model.config.llm.num_blocks),
            # Twice as many tokens a second as in the later versions.
            SpeechTally(frozenset(), 0, 2 * MAX_LOOP_TOKENS),
        )
        with self._wake:
            if self._closing:
                raise SynthesisFailed("The speech LM is closed.")
            self._waiting.append(job)
            self._wake.notify()
        return job

    def wake(self) -> None:
        """Look again at requests that were paused or cancelled."""
        with self._wake:
            self._wake.notify()

    def _check(self, request: SpeechLMRequest, text: tuple[int, ...]) -> None:
        config, prompt = self._model.config, request.prompt
        for name, ids, limit in (
            ("text", text, config.text_token_size),
            ("prompt.text_ids", prompt.text_ids, config.text_token_size),
            ("prompt.speech_ids", prompt.speech_ids, config.speech_token_size),
        ):
            if any(not 0 <= token < limit for token in ids):
                raise InvalidRequest(
                    f"{name} has an id outside 0 to {limit - 1}.", field=name, limit=limit - 1
                )
        if len(prompt.speaker) not in (0, config.spk_embed_dim):
            raise InvalidRequest(
                f"The speaker embedding must have {config.spk_embed_dim} numbers.",
                field="prompt.speaker",
                limit=config.spk_embed_dim,
            )
        known = len(prompt.text_ids) + len(text) + len(prompt.speech_ids) + 3
        if known >= self._positions:
            raise InvalidRequest(
                f"Prompt and text take {known} positions, more than one sequence may hold.",
                field="text",
                limit=self._positions,
            )

    # On the worker thread.

    def _work(self) -> None:
        while True:
            with self._wake:
                while not self._closing and not self._admit():
                    self._wake.wait()
                if self._closing:
                    break
            for job in list(self._active):
                if not job.paused and not job.cancelled:
                    self._step(job)
        for job in (*self._active, *self._waiting):
            job.generation.deliver(SynthesisFailed("The speech LM was closed."))
        self._active.clear()
        self._waiting.clear()

    def _admit(self) -> bool:
        """Fill free slots; return whether there is a step to take."""
        self._active = [job for job in self._active if not job.cancelled]
        while self._waiting and len(self._active) < self._slots:
            job = self._waiting.popleft()
            if not job.cancelled:
                self._active.append(job)
        return any(not job.paused for job in self._active)

    def _step(self, job: _Job) -> None:
        try:
            outcome = self._next(job)
        except Exception as error:  # A fault in the model must not take the worker with it.
            outcome = SynthesisFailed(f"The speech LM failed ({type(error).__name__}).")
        if not isinstance(outcome, int):
            job.cancelled = True
        job.generation.deliver(outcome)

    def _next(self, job: _Job) -> Outcome:
        """Take one step of a request."""
        model, count = self._model, len(job.history)
        if count >= job.longest:
            return FinishReason.LENGTH
        if job.memory.length >= self._positions:
            return FinishReason.LENGTH
        if job.history:
            logits = model.step(model.embed_speech(job.history[-1]), job.memory)
        else:
            logits = model.start(model.prefix(job.request.prompt, job.text), job.memory)
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


class TextSpeechGeneration:
    """`Generation` of this backend. Used by one task."""

    cached_ids: int | None = None

    def __init__(self, backend: TorchTextSpeechLM, request: SpeechLMRequest) -> None:
        self._backend = backend
        self._request = request
        self._outcomes: asyncio.Queue[Outcome] = asyncio.Queue()
        self._job: _Job | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reserved = False
        self._reason: FinishReason | None = None
        self._over = False

    @property
    def finish_reason(self) -> FinishReason | None:
        """See `Generation`."""
        return self._reason

    def __aiter__(self) -> AsyncIterator[int]:
        return self

    async def __anext__(self) -> int:
        if self._over:
            raise StopAsyncIteration
        if self._job is None:
            await self._start()
        if self._over or self._job is None:
            raise StopAsyncIteration
        outcome = await self._outcomes.get()
        if isinstance(outcome, int):
            was_paused = self._job.paused
            self._job.consumed += 1
            if was_paused:
                self._backend.wake()
            return outcome
        self._finish()
        if isinstance(outcome, AntiphonError):
            raise outcome
        self._reason = outcome
        raise StopAsyncIteration

    async def _start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._backend.reserve()
        self._reserved = True
        try:
            text = await self._whole_text()
            if not self._over:
                self._job = self._backend.submit(self, self._request, text)
        except BaseException:
            self._finish()
            raise

    async def _whole_text(self) -> tuple[int, ...]:
        text = self._request.text
        if not isinstance(text, AsyncIterator):
            return tuple(text)
        ids: list[int] = []
        async for piece in text:
            ids.extend(piece)
        return tuple(ids)

    def deliver(self, outcome: Outcome) -> None:
        """Hand an outcome over; from the worker."""
        assert self._loop is not None
        call_in(self._loop, self._outcomes.put_nowait, outcome)

    def _finish(self) -> None:
        self._over = True
        if self._reserved:
            self._reserved = False
            self._backend.release()

    async def aclose(self) -> None:
        """Cancel: the worker drops the request before its next step. Idempotent."""
        if self._over:
            return
        self._finish()
        self._reason = FinishReason.CANCELLED
        if self._job is not None:
            self._job.cancelled = True
            self._backend.wake()
