"""The speech LM in this process: one worker thread, one batch, an asyncio front.

lm = TorchSpeechLM.load(checkpoint, slots=8)
async for token in lm.generate(SpeechLMRequest(prompt, text, sampling)):
    …
await lm.close()
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Final

import torch

from antiphon.engine.checkpoint import Checkpoint
from antiphon.engine.errors import InvalidRequest, Overloaded, SynthesisFailed
from antiphon.engine.speech_lm.decoder import Decoder, Job, Outcome, Pick
from antiphon.engine.speech_lm.generation import InProcess, TorchGeneration, call_in
from antiphon.engine.speech_lm.layout import Sequence
from antiphon.engine.speech_lm.qwen2 import Qwen2SpeechLM
from antiphon.engine.speech_lm.request import SpeechLMRequest
from antiphon.engine.speech_lm.sampling import sample
from antiphon.engine.speech_lm.sequences import SequenceBuilder

MAX_AHEAD_TOKENS: Final = 250
"""Ten seconds of speech that nobody has taken: the sequence then pauses."""
RETRY_AFTER_S: Final = 1.0

Command = Callable[[], None]


class TorchSpeechLM(InProcess):
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
        self._ended = False
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

    def begin(self, generation: TorchGeneration, request: SpeechLMRequest) -> Job:
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
        """Have the worker run a command between two steps; once it has ended, run it here."""
        with self._wake:
            if not self._ended:
                self._commands.append(command)
                self._wake.notify()
                return
        command()

    def post_until(self, attempt: Callable[[], bool]) -> None:
        """Have the worker try between steps until it succeeds."""
        self.post(lambda: None if attempt() else self._attempts.append(attempt))

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
        with self._wake:
            self._ended = True
            commands = list(self._commands)
        for command in commands:
            command()

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


def _receive_all(items: list[tuple[TorchGeneration, Outcome]]) -> None:
    for generation, outcome in items:
        generation.receive(outcome)
