"""The speech LM in this process: one worker thread, one batch, an asyncio front.

    lm = TorchSpeechLM.load(checkpoint, slots=8)
    async for token in lm.generate(SpeechLMRequest(prompt, text, sampling)):
        …
    await lm.close()
"""

from __future__ import annotations

import asyncio
import collections.abc
import secrets
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final, TypeVar, TypeVarTuple, Unpack

import torch

from antiphon.engine.checkpoint import Checkpoint
from antiphon.engine.errors import AntiphonError, InvalidRequest, Overloaded, SynthesisFailed
from antiphon.engine.interface import FinishReason
from antiphon.engine.speech_lm.decoder import Decoder, Job, Outcome, Pick
from antiphon.engine.speech_lm.layout import Sequence
from antiphon.engine.speech_lm.qwen2 import Qwen2SpeechLM
from antiphon.engine.speech_lm.request import SpeechLMRequest
from antiphon.engine.speech_lm.sampling import sample
from antiphon.engine.speech_lm.sequences import SequenceBuilder

MAX_AHEAD_TOKENS: Final = 250
"""Ten seconds of speech that nobody has taken: the sequence then pauses."""
MAX_PENDING_TEXT: Final = 512
"""Text ids waiting to be used by one request: its source then pauses."""
RETRY_AFTER_S: Final = 1.0

Ids = collections.abc.Sequence[int]
Command = Callable[[], None]
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class TorchSpeechLM:
    """`SpeechLM` on torch. One instance serves all sessions of a process."""

    def __init__(
        self,
        model: Qwen2SpeechLM,
        builder: SequenceBuilder,
        *,
        slots: int,
        positions: int,
        max_waiting: int,
        prefill_positions: int = 64,
        pick: Pick = sample,
    ) -> None:
        self.builder = builder
        self._capacity = slots + max_waiting
        self._positions = positions
        self._decoder = Decoder(
            model,
            slots=slots,
            positions=positions,
            prefill_positions=prefill_positions,
            dtype=model.dtype,
            pick=pick,
        )
        self._commands: deque[Command] = deque()
        self._attempts: list[Callable[[], bool]] = []
        self._wake = threading.Condition()
        self._closing = False
        self._running: dict[Job, TorchGeneration] = {}
        self._reserved = 0
        self._thread = threading.Thread(target=self._work, name="speech-lm", daemon=True)
        self._thread.start()

    @classmethod
    def load(
        cls,
        checkpoint: Checkpoint,
        *,
        slots: int = 8,
        positions: int = 2048,
        max_waiting: int = 16,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
        compat: bool = False,
        pick: Pick = sample,
    ) -> TorchSpeechLM:
        """Load the speech LM of a checkpoint (version 2 or 3).

        Args:
            checkpoint: where the weights come from.
            slots: sequences that decode together; the cache for all of them is reserved here.
            positions: ids (text and speech, prompt included) that one sequence may hold.
            max_waiting: sequences that may queue for a slot before a request is refused.
            dtype: of weights and cache.
            device: `cpu` or a CUDA device.
            compat: the published implementation's sequences, faults included (golden tests).
            pick: the sampler; replaced by scripts in tests.

        Raises:
            CheckpointError: weights that do not fit the configuration.
        """
        config = checkpoint.lm_config
        positions = min(positions, config.backbone.max_position_embeddings)
        model = Qwen2SpeechLM(
            config, checkpoint.lm_state_dict(), positions=positions, dtype=dtype, device=device
        )
        end_of_prompt = checkpoint.tokenizer.end_of_prompt
        builder = SequenceBuilder(model.vocabulary, end_of_prompt, compat=compat)
        return cls(
            model, builder, slots=slots, positions=positions, max_waiting=max_waiting, pick=pick
        )

    @property
    def load_now(self) -> int:
        """Requests that run or wait for a slot."""
        return self._reserved

    def generate(self, request: SpeechLMRequest) -> TorchGeneration:
        """Start a request; see `SpeechLM.generate`.

        The first `__anext__` raises `Overloaded` when slots and queue are full, `InvalidRequest`
        when the request cannot be.
        """
        return TorchGeneration(self, request)

    async def close(self) -> None:
        """End the worker; what runs ends with `SynthesisFailed`. Idempotent."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        await asyncio.to_thread(self._thread.join)

    # Called by generations, on their event loop.

    def start(self, generation: TorchGeneration, request: SpeechLMRequest) -> Job:
        """Reserve a place and queue the request."""
        if self._closing:
            raise SynthesisFailed("The speech LM is closed.")
        if self._reserved >= self._capacity:
            raise Overloaded(
                "All places of the speech LM are taken.",
                retry_after_s=RETRY_AFTER_S,
                limit=self._capacity,
            )
        sequence = self.builder.build(request)
        self._check_room(request, sequence)
        sampling = request.sampling
        seed = secrets.randbits(63) if sampling.seed is None else sampling.seed
        job = Job(sequence, sampling, seed, MAX_AHEAD_TOKENS)
        self._reserved += 1

        def add() -> None:
            self._running[job] = generation
            self._decoder.add(job)

        self.post(add)
        return job

    def _check_room(self, request: SpeechLMRequest, sequence: Sequence) -> None:
        known = len(request.prompt.text_ids) + len(request.prompt.speech_ids) + 2
        if not isinstance(request.text, AsyncIterator):
            known += len(request.text)
        if known >= self._positions:
            raise InvalidRequest(
                f"Prompt and text take {known} ids, more than one sequence may hold.",
                field="text",
                limit=self._positions,
            )

    def post(self, command: Command) -> None:
        """Have the worker run a command between two steps."""
        with self._wake:
            self._commands.append(command)
            self._wake.notify()

    def post_until(self, attempt: Callable[[], bool]) -> None:
        """Have the worker try between steps until it succeeds."""
        self.post(lambda: None if attempt() else self._attempts.append(attempt))

    @property
    def alive(self) -> bool:
        """Whether the worker runs."""
        return self._thread.is_alive()

    def released(self) -> None:
        """Give a reserved place back."""
        self._reserved -= 1

    # On the worker thread.

    def discard(self, job: Job) -> None:
        """Free what a request holds."""
        self._decoder.cancel(job)
        self._running.pop(job, None)

    def _work(self) -> None:
        idle = False
        while True:
            with self._wake:
                while idle and not self._commands and not self._closing:
                    self._wake.wait()
                if self._closing:
                    break
                commands = list(self._commands)
                self._commands.clear()
            for command in commands:
                command()
            self._attempts = [attempt for attempt in self._attempts if not attempt()]
            idle = not self._step()
        self._fail_all("The speech LM was closed.")

    def _step(self) -> bool:
        try:
            outcomes, computed = self._decoder.run_once()
        except Exception as error:  # A fault in the model must not take the worker with it.
            self._fail_all(f"The speech LM failed ({type(error).__name__}).")
            return True
        self._deliver(outcomes)
        return computed or bool(outcomes)

    def _fail_all(self, message: str) -> None:
        jobs = self._decoder.abandon()
        self._deliver([(job, SynthesisFailed(message)) for job in jobs])

    def _deliver(self, outcomes: list[tuple[Job, Outcome]]) -> None:
        """Hand outcomes over, with one wake-up for each event loop."""
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[TorchGeneration, Outcome]]] = {}
        for job, outcome in outcomes:
            generation = self._running.get(job)
            if generation is None:
                continue
            if not isinstance(outcome, int):
                del self._running[job]
            by_loop.setdefault(generation.loop, []).append((generation, outcome))
        for loop, items in by_loop.items():
            call_in(loop, _receive_all, items)


def call_in(
    loop: asyncio.AbstractEventLoop, function: Callable[[Unpack[Ts]], object], *arguments: Unpack[Ts]
) -> None:
    """Call in an event loop from another thread; a loop that is gone has nobody to tell."""
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        return


def _receive_all(items: list[tuple[TorchGeneration, Outcome]]) -> None:
    for generation, outcome in items:
        generation.receive(outcome)


class TorchGeneration:
    """`Generation` of the torch backend. Used by one task."""

    loop: asyncio.AbstractEventLoop

    def __init__(self, backend: TorchSpeechLM, request: SpeechLMRequest) -> None:
        self._backend = backend
        self._request = request
        self._outcomes: asyncio.Queue[Outcome] = asyncio.Queue()
        self._job: Job | None = None
        self._pump: asyncio.Task[None] | None = None
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
            self._start()
        assert self._job is not None
        outcome = await self._outcomes.get()
        if isinstance(outcome, int):
            self._take(self._job)
            return outcome
        self._finish()
        if isinstance(outcome, AntiphonError):
            raise outcome
        self._reason = outcome
        raise StopAsyncIteration

    def _start(self) -> None:
        self.loop = asyncio.get_running_loop()
        text = self._request.text
        self._job = self._backend.start(self, self._request)
        if isinstance(text, AsyncIterator):
            self._pump = self.loop.create_task(self._feed(self._job, text))

    def _take(self, job: Job) -> None:
        was_paused = job.paused
        job.consumed += 1
        if was_paused:
            self._backend.post(lambda: None)

    async def _feed(self, job: Job, text: AsyncIterator[Ids]) -> None:
        """Pass text on as it comes, at most `MAX_PENDING_TEXT` ids ahead of its use."""
        try:
            async for piece in text:
                ids = tuple(piece)
                if ids:
                    await self._push(job, ids)
            self._backend.post(job.sequence.end_text)
        except AntiphonError as error:
            self._fail(error)
        except Exception as error:  # The caller's iterator may raise anything.
            self._fail(SynthesisFailed(f"The text source failed ({type(error).__name__})."))

    async def _push(self, job: Job, ids: tuple[int, ...]) -> None:
        self._backend.builder.check_text(ids)
        taken: asyncio.Future[None] = self.loop.create_future()

        def push() -> bool:
            if job.sequence.pending_text > MAX_PENDING_TEXT and not self._over:
                return False
            job.sequence.push_text(ids)
            call_in(self.loop, _resolve, taken, None)
            return True

        self._backend.post_until(push)
        await taken

    def _fail(self, error: AntiphonError) -> None:
        job = self._job
        assert job is not None
        self._backend.post(lambda: self._backend.discard(job))
        self.receive(error)

    def receive(self, outcome: Outcome) -> None:
        """Take an outcome from the worker; on the event loop."""
        self._outcomes.put_nowait(outcome)

    def _finish(self) -> None:
        if not self._over:
            self._over = True
            if self._pump is not None:
                self._pump.cancel()
            if self._job is not None:
                self._backend.released()

    async def aclose(self) -> None:
        """Cancel: the worker frees the slot before its next step. Idempotent."""
        job = self._job
        if self._over or job is None:
            self._over = True
            return
        self._finish()
        self._reason = FinishReason.CANCELLED
        freed: asyncio.Future[None] = self.loop.create_future()

        def discard() -> None:
            self._backend.discard(job)
            call_in(self.loop, _resolve, freed, None)

        if self._backend.alive:
            self._backend.post(discard)
            await freed


def _resolve(future: asyncio.Future[T], value: T) -> None:
    if not future.done():
        future.set_result(value)
