"""One request of the torch backend, as its session sees it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar, TypeVarTuple

from antiphon.engine.errors import AntiphonError, SynthesisFailed
from antiphon.engine.interface import FinishReason
from antiphon.engine.speech_lm.decoder import Outcome
from antiphon.engine.speech_lm.request import SpeechLMRequest

MAX_PIECES_UNDER_WAY: Final = 16
"""Words handed to the worker that it has not looked at yet: their source then pauses."""
MAX_PENDING_TEXT: Final = 512
"""Text ids waiting to be used by one request: its source then pauses."""

Ids = Sequence[int]
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class TextSink(Protocol):
    """Where a request's text goes; on the worker."""

    @property
    def pending_text(self) -> int:
        """Ids that wait to be used."""

    def push_text(self, ids: tuple[int, ...]) -> None:
        """Add ids."""

    def end_text(self) -> None:
        """No more text will come."""


class RunningJob(Protocol):
    """A request on the worker, as its receiver sees it."""

    consumed: int

    @property
    def sequence(self) -> TextSink:
        """Where its text goes."""

    @property
    def paused(self) -> bool:
        """Whether it waits for its receiver."""


J = TypeVar("J", bound=RunningJob)


class Backend(Protocol[J]):
    """What a generation needs of its backend."""

    def begin(self, generation: TorchGeneration[J], request: SpeechLMRequest) -> J:
        """Reserve a place and queue the request."""

    def check_text(self, ids: tuple[int, ...]) -> None:
        """Refuse text ids that the checkpoint has no row for."""

    def released(self) -> None:
        """Take a reserved place back."""

    def post(self, command: Callable[[], None]) -> None:
        """Run a command on the worker between two steps."""

    def post_until(self, attempt: Callable[[], bool]) -> None:
        """Try on the worker between steps until it succeeds."""

    def discard(self, job: J) -> None:
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


class TorchGeneration(Generic[J]):
    """`Generation` of the torch backends. Iterated by one task; any task may close it."""

    cached_ids: int | None = None
    loop: asyncio.AbstractEventLoop

    def __init__(self, backend: Backend[J], request: SpeechLMRequest) -> None:
        self._backend = backend
        self._request = request
        self._outcomes: asyncio.Queue[Outcome] = asyncio.Queue()
        self._given: deque[tuple[int, ...]] = deque()
        self._taken = asyncio.Event()
        self._job: J | None = None
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

    def _take(self, job: J) -> None:
        was_paused = job.paused
        job.consumed += 1
        if was_paused:
            self._backend.post(lambda: None)

    async def _feed(self, job: J, text: AsyncIterator[Ids]) -> None:
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

    async def _push(self, job: J, ids: tuple[int, ...]) -> None:
        """Hand a piece to the worker; wait for it only while several are on their way.

        Words that are there together so reach the LM before its next step, not one at each.
        """
        self._backend.check_text(ids)
        self._given.append(ids)

        def take() -> bool:
            while self._given:
                if job.sequence.pending_text > MAX_PENDING_TEXT and not self._over:
                    return False
                job.sequence.push_text(self._given.popleft())
            call_in(self.loop, self._taken.set)
            return True

        self._backend.post_until(take)
        if len(self._given) >= MAX_PIECES_UNDER_WAY:
            self._taken.clear()
            await self._taken.wait()

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
