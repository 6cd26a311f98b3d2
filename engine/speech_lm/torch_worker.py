"""One worker thread with an asyncio front: what the torch backends of all generations share."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, Protocol

from antiphon.engine.errors import Overloaded, SynthesisFailed
from antiphon.engine.speech_lm.decoder import Outcome
from antiphon.engine.speech_lm.generation import J, TorchGeneration, call_in
from antiphon.engine.speech_lm.request import SpeechLMRequest, WarmPrompts, no_prompts

RETRY_AFTER_S: Final = 1.0

Command = Callable[[], None]


class StepDecoder(Protocol[J]):
    """Requests that are computed step by step; used by the worker's thread alone."""

    def add(self, job: J) -> None:
        """Queue a request."""

    def cancel(self, job: J) -> None:
        """Forget a request and free what it holds. Idempotent."""

    def abandon(self) -> list[J]:
        """Forget everything and return what was there."""

    def run_once(self) -> tuple[list[tuple[J, Outcome]], bool]:
        """Take one step; return what came out of it, and whether anything was computed."""


class TorchWorker(ABC, Generic[J]):
    """The part of `SpeechLM` around a decoder. Without an engine or a prefix cache of its own."""

    ready = True

    def __init__(self, decoder: StepDecoder[J], *, capacity: int, name: str) -> None:
        """Serve up to `capacity` requests, running or waiting, on a thread called `name`."""
        self._decoder = decoder
        self._capacity = capacity
        self._commands: deque[Command] = deque()
        self._attempts: list[Callable[[], bool]] = []
        self._wake = threading.Condition()
        self._closing = False
        self._ended = False
        self._running: dict[J, TorchGeneration[J]] = {}
        self._reserved = 0
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    @abstractmethod
    def make_job(self, request: SpeechLMRequest) -> J:
        """Check a request and return it as the decoder takes it.

        Raises:
            InvalidRequest: it cannot be.
        """

    @abstractmethod
    def check_text(self, ids: tuple[int, ...]) -> None:
        """Refuse text ids that the checkpoint has no row for.

        Raises:
            InvalidRequest: naming the field.
        """

    @property
    def load_now(self) -> int:
        """Requests that run or wait for a slot."""
        return self._reserved

    def generate(self, request: SpeechLMRequest) -> TorchGeneration[J]:
        """Start a request; see `SpeechLM.generate`.

        The first `__anext__` raises `Overloaded` when slots and queue are full, `InvalidRequest`
        when the request cannot be.
        """
        return TorchGeneration(self, request)

    async def start(self, prompts: WarmPrompts = no_prompts) -> None:
        """Nothing: the worker runs from the beginning, and no prefix outlives its request."""

    def revoke(self, voice: str) -> None:
        """Nothing: see `start`."""

    async def close(self) -> None:
        """End the worker; what runs ends with `SynthesisFailed`. Idempotent."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        await asyncio.to_thread(self._thread.join)

    # Called by generations, on their event loop.

    def begin(self, generation: TorchGeneration[J], request: SpeechLMRequest) -> J:
        """Reserve a place and queue the request.

        Raises:
            SynthesisFailed: the backend is closed.
            Overloaded, InvalidRequest: see `generate`.
        """
        if self._closing:
            raise SynthesisFailed("The speech LM is closed.")
        if self._reserved >= self._capacity:
            raise Overloaded(
                "All places of the speech LM are taken.",
                retry_after_s=RETRY_AFTER_S,
                limit=self._capacity,
            )
        job = self.make_job(request)
        self._reserved += 1

        def add() -> None:
            self._running[job] = generation
            self._decoder.add(job)

        self.post(add)
        return job

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

    def discard(self, job: J) -> None:
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

    def _deliver(self, outcomes: list[tuple[J, Outcome]]) -> None:
        """Hand outcomes over, with one wake-up for each event loop."""
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[TorchGeneration[J], Outcome]]] = {}
        for job, outcome in outcomes:
            generation = self._running.get(job)
            if generation is None:
                continue
            if not isinstance(outcome, int):
                del self._running[job]
            by_loop.setdefault(generation.loop, []).append((generation, outcome))
        for loop, items in by_loop.items():
            call_in(loop, _receive_all, items)


def _receive_all(items: list[tuple[TorchGeneration[J], Outcome]]) -> None:
    for generation, outcome in items:
        generation.receive(outcome)
