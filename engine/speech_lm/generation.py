"""One request of the torch backend, as its session sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, Protocol, TypeVar, TypeVarTuple

from antiphon.engine.errors import AntiphonError, SynthesisFailed
from antiphon.engine.interface import FinishReason
from antiphon.engine.speech_lm.decoder import Job, Outcome
from antiphon.engine.speech_lm.request import SpeechLMRequest
from antiphon.engine.speech_lm.sequences import SequenceBuilder
from antiphon.engine.voice.voice import LMPrompt

MAX_PENDING_TEXT: Final = 512
"""Text ids waiting to be used by one request: its source then pauses."""

Ids = Sequence[int]
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Backend(Protocol):
    """What a generation needs of its backend."""

    builder: SequenceBuilder

    def begin(self, generation: TorchGeneration, request: SpeechLMRequest) -> Job:
        """Reserve a place and queue the request."""

    def released(self) -> None:
        """Take a reserved place back."""

    def post(self, command: Callable[[], None]) -> None:
        """Run a command on the worker between two steps."""

    def post_until(self, attempt: Callable[[], bool]) -> None:
        """Try on the worker between steps until it succeeds."""

    def discard(self, job: Job) -> None:
        """Free what a request holds; on the worker."""


def call_in(
    loop: asyncio.AbstractEventLoop,
    function: Callable[[*Ts], object],
    *arguments: *Ts,
) -> None:
    """Call in an event loop from another thread; a loop that is gone has nobody to tell."""
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:
        return


class InProcess:
    """The part of `SpeechLM` that a backend without an engine or a prefix cache has little of."""

    ready = True

    async def start(self) -> None:
        """Nothing: the worker runs from the beginning."""

    async def warm(self, prompt: LMPrompt, voice: str | None = None) -> None:
        """Nothing: no prefix outlives its request."""

    def revoke(self, voice: str) -> None:
        """Nothing: see `warm`."""


class TorchGeneration:
    """`Generation` of the torch backend. Iterated by one task; any task may close it."""

    cached_ids: int | None = None
    loop: asyncio.AbstractEventLoop

    def __init__(self, backend: Backend, request: SpeechLMRequest) -> None:
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

    @property
    def buffered(self) -> int:
        """Tokens that were made and not yet taken."""
        return self._outcomes.qsize()

    def __aiter__(self) -> AsyncIterator[int]:
        return self

    async def __anext__(self) -> int:
        if self._over:
            raise StopAsyncIteration
        if self._job is None:
            self._start()
        assert self._job is not None
        outcome = await self._outcomes.get()
        if self._over:
            raise StopAsyncIteration
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
        self._job = self._backend.begin(self, self._request)
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
        self.receive(FinishReason.CANCELLED)
        freed: asyncio.Future[None] = self.loop.create_future()

        def discard() -> None:
            self._backend.discard(job)
            call_in(self.loop, _resolve, freed, None)

        self._backend.post(discard)
        await freed


def _resolve(future: asyncio.Future[T], value: T) -> None:
    if not future.done():
        future.set_result(value)
