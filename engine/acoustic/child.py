"""One run of the acoustic engine's process, seen from the server's: its pipe and open questions."""

from __future__ import annotations

import logging
import multiprocessing
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from antiphon.engine.acoustic.watchdog import Silence
from antiphon.engine.errors import SynthesisFailed

STOP_TIMEOUT_S = 10.0
HELLO = 0
"""Number of the reply that says how the model is to be used, or why it cannot be loaded."""
BEAT = -1
"""Number of the reply to `Ping`."""
_END = object()
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ping:
    """Answered by the thread that computes, between two calls of the model.

    A thread beside it would go on answering while that one hangs.
    """


@dataclass(frozen=True, slots=True)
class Reply:
    """What the process says about call number `call`."""

    call: int
    result: Any
    cache_bytes: int = 0
    turn_bytes: int = 0


@dataclass(slots=True, eq=False)
class RemoteTurn:
    """A turn whose state lies in a process."""

    number: int
    child: Child
    nbytes: int = 0


@dataclass(slots=True)
class _Question:
    future: Future[Any]
    turn: RemoteTurn


@dataclass(eq=False)
class Child:
    """A process, from its start to its end. No method waits for it, except `stop`.

    Attributes:
        hello: sample rate and codes, once the model is loaded; or why it cannot be.
        cache_bytes: as of the last reply.
    """

    target: Callable[..., None]
    arguments: tuple[object, ...]
    on_end: Callable[[Child], None]
    """Called from a thread once the process has ended and its questions have failed."""
    silence: Silence
    """When it is given up: killed, its questions answered by an error."""
    hello: Future[tuple[int, int]] = field(default_factory=Future)
    cache_bytes: int = 0

    def __post_init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self.process = context.Process(
            target=self.target, args=(theirs, *self.arguments), name="acoustic", daemon=True
        )
        self._lock = threading.Lock()
        self._alive = True
        self._heard = 0
        self._asked_for_life = False
        self._over = threading.Event()
        self._questions: dict[int, _Question] = {}
        # What a process that loads, or does not read, has yet to take; bounded by the turns that
        # may be open.
        self._outbox: SimpleQueue[object] = SimpleQueue()
        self.process.start()
        theirs.close()
        for task in (self._write, self._read, self._watch):
            threading.Thread(target=task, daemon=True).start()

    @property
    def ready(self) -> bool:
        """Whether the model is loaded and the process lives."""
        return self._alive and self.hello.done() and self.hello.exception() is None

    def ask(self, call: int, turn: RemoteTurn, message: object) -> Future[Any]:
        """Send a message; the future has the reply to it, `turn` where that is empty."""
        future: Future[Any] = Future()
        with self._lock:
            if self._alive:
                self._questions[call] = _Question(future, turn)
                self._outbox.put(message)
                return future
        future.set_exception(gone())
        return future

    def tell(self, message: object) -> None:
        """Send a message that has no reply."""
        self._outbox.put(message)

    def forget(self, turn: RemoteTurn) -> None:
        """Want no replies to a turn any more."""
        with self._lock:
            for call in [call for call, asked in self._questions.items() if asked.turn is turn]:
                del self._questions[call]

    def stop(self) -> None:
        """Ask the process to end, and kill it where it does not."""
        self.tell(None)
        self.process.join(STOP_TIMEOUT_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()

    def _write(self) -> None:
        while (message := self._outbox.get()) is not _END:
            with suppress(OSError):
                self._connection.send(message)

    def _read(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                self._resolve(self._connection.recv())
        self.process.join()
        self._over.set()
        self._outbox.put(_END)
        self._give_up(gone())
        self.on_end(self)

    def _watch(self) -> None:
        """Ask whether it still computes, and kill it where it does not say so."""
        while not self._over.wait(self.silence.tick_s):
            loaded = self.hello.done()
            if self.silence.tick(self._heard, loaded=loaded):
                limit_s = self.silence.limit_s if loaded else self.silence.loading_limit_s
                self._kill(f"the acoustic process said nothing for {limit_s:g} s")
                return
            if loaded and not self._asked_for_life:
                self._asked_for_life = True
                self.tell(Ping())

    def _kill(self, why: str) -> None:
        _log.error("%s; killing it", why)
        self._give_up(gone("hangs and is being started again"))
        self.process.kill()

    def _give_up(self, error: SynthesisFailed) -> None:
        """Answer all that is open with an error, and take no more."""
        with self._lock:
            self._alive = False
            lost = [asked.future for asked in self._questions.values()]
            self._questions.clear()
        self.cache_bytes = 0
        for future in lost:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
        _settle(self.hello, error)

    def _resolve(self, reply: Reply) -> None:
        self._heard += 1
        self.cache_bytes = reply.cache_bytes
        if reply.call == BEAT:
            self._asked_for_life = False
            if reply.result is not None:
                self._kill("the acoustic process's worker ended")
            return
        if reply.call == HELLO:
            _settle(self.hello, reply.result)
            return
        with self._lock:
            asked = self._questions.pop(reply.call, None)
        if asked is None or not asked.future.set_running_or_notify_cancel():
            return
        asked.turn.nbytes = reply.turn_bytes
        _settle(asked.future, asked.turn if reply.result is None else reply.result)


def gone(what: str = "ended unexpectedly and is being started again") -> SynthesisFailed:
    """The error of a turn whose process is no more."""
    return SynthesisFailed(f"the acoustic engine {what}")


def _settle(future: Future[Any], result: object) -> None:
    # Loading may end at the moment at which it is given up.
    with suppress(InvalidStateError):
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)
