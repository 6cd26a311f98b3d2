"""One connection's turns: carries out the turn machine's effects, in order, for any protocol."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

import structlog

from antiphon.server.config import Limits
from antiphon.server.engines import EngineSet
from antiphon.server.errors import SlowReader
from antiphon.server.speaking import Resources, SpeakingTurn
from antiphon.server.turn import TurnMachine
from antiphon.server.turn_events import (
    Done,
    Dropped,
    Effect,
    Failed,
    Feed,
    FeedEnd,
    FeedFlush,
    Finished,
    Input,
    Opened,
    OpenTurn,
    Progressed,
    Refused,
    Spoke,
    StopTurn,
    Tick,
)

_CLOSE_WAIT_S = 10.0
"""Longest wait for an engine to free the turns of a connection that is gone."""

_log = structlog.get_logger("antiphon.conversation")


class Outlet(Protocol):
    """How a protocol writes to its client."""

    async def room(self, turn: int) -> None:
        """Wait until more audio of this turn may be under way.

        Raises:
            SlowReader: the client reads nothing.
        """

    async def writable(self) -> None:
        """Wait until the transport takes a message.

        Raises:
            SlowReader: the client reads nothing.
        """

    async def write(self, effect: Effect) -> None:
        """Hand an effect's messages to the transport. Does not wait if `writable` returned."""

    def note(self, effect: Opened | Feed) -> None:
        """Learn of a turn and its text, of which nothing is sent by itself."""

    def stalled(self, error: SlowReader) -> None:
        """Close the connection of a client that reads nothing."""


class Conversation:
    """Runs a connection. `submit` takes commands; `close` ends everything.

    Messages leave in the order of the machine's effects: the lock is first come, first served, and
    nothing is awaited between the machine's answer and the lock. Audio is different: it waits for
    room first and is shown to the machine only when the transport takes it, so that after a cancel
    has been read nothing of that turn is handed over any more.
    """

    def __init__(
        self,
        *,
        engines: EngineSet,
        resources: Resources,
        limits: Limits,
        outlet: Outlet,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._engines = engines
        self._resources = resources
        self._limits = limits
        self._outlet = outlet
        self._clock = clock
        self.machine = TurnMachine(limits, clock())
        self._speaking: dict[int, SpeakingTurn] = {}
        self._last_of: dict[str, SpeakingTurn] = {}
        self._order = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._ticking: asyncio.Task[None] | None = None
        self._arm()

    async def submit(self, event: Input, *, at: float | None = None) -> None:
        """Take a command or report. `at` is when it arrived."""
        effects = self.machine.handle(event, self._clock() if at is None else at)
        await self._perform(effects)

    async def audio(self, event: Spoke) -> None:
        """Hand a message over once there is room for it (`Reports`)."""
        try:
            await self._outlet.room(event.turn)
            async with self._order:
                await self._outlet.writable()
                # No await between the machine's consent and the transport.
                for effect in self.machine.handle(event, self._clock()):
                    await self._outlet.write(effect)
        except SlowReader as error:
            await self._stalled(error)
            raise
        self._arm()

    async def report(self, event: Progressed | Finished | Failed) -> None:
        """A turn's own report (`Reports`)."""
        await self.submit(event)

    async def close(self) -> None:
        """End everything and wait until the engine has freed it."""
        await self._perform(self.machine.handle(Dropped(), self._clock()))
        if self._timer is not None:
            self._timer.cancel()
        tasks = [turn.task for turn in self._speaking.values()]
        if tasks:
            _, stuck = await asyncio.wait(tasks, timeout=_CLOSE_WAIT_S)
            if stuck:
                _log.error("turns_stuck", turns=len(stuck), waited_s=_CLOSE_WAIT_S)

    async def _perform(self, effects: list[Effect]) -> None:
        writes: list[Effect] = []
        for effect in effects:
            # Work on turns comes first and never waits: a cancel takes effect before its answer
            # finds room in the transport.
            match effect:
                case OpenTurn():
                    self._open(effect)
                case Opened():
                    self._outlet.note(effect)
                case Feed(turn, text):
                    self._outlet.note(effect)
                    self._speaking[turn].feed(text)
                case FeedFlush(turn):
                    self._speaking[turn].flush()
                case FeedEnd(turn):
                    self._speaking[turn].end()
                case StopTurn(turn):
                    self._stop(turn)
                case _:
                    writes.append(effect)
        self._arm()
        for effect in writes:
            self._count(effect)
        if writes:
            await self._write(writes)

    async def _write(self, effects: list[Effect]) -> None:
        try:
            async with self._order:
                for effect in effects:
                    await self._outlet.writable()
                    await self._outlet.write(effect)
        except SlowReader as error:
            await self._stalled(error)

    async def _stalled(self, error: SlowReader) -> None:
        self._resources.metrics.errors.labels(error.code).inc()
        self._outlet.stalled(error)
        await self._perform(self.machine.handle(Dropped(), self._clock()))

    def _open(self, effect: OpenTurn) -> None:
        turn = SpeakingTurn(
            effect,
            self._engines.engine(effect.settings.model),
            self._resources,
            self,
            self._last_of.get(effect.context),
        )
        self._speaking[effect.turn] = turn
        self._last_of[effect.context] = turn
        turn.task.add_done_callback(lambda _: self._ended(effect, turn))

    def _stop(self, turn: int) -> None:
        speaking = self._speaking.get(turn)
        if speaking is None:
            return
        speaking.stop()
        if self.machine.closed:
            # No `Done` follows on a connection that is gone.
            self._resources.metrics.turn_dropped(speaking.model)

    def _ended(self, effect: OpenTurn, turn: SpeakingTurn) -> None:
        self._speaking.pop(effect.turn, None)
        if self._last_of.get(effect.context) is turn:
            del self._last_of[effect.context]

    def _count(self, effect: Effect) -> None:
        metrics = self._resources.metrics
        if isinstance(effect, Done):
            metrics.turn_done(effect.report)
        elif isinstance(effect, Refused):
            metrics.errors.labels(effect.error.code).inc()

    def _arm(self) -> None:
        """Wake at the machine's next deadline."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.machine.deadline()
        if due is not None:
            delay = max(0.0, due - self._clock())
            self._timer = asyncio.get_running_loop().call_later(delay, self._due)

    def _due(self) -> None:
        self._ticking = asyncio.create_task(self.submit(Tick()))
