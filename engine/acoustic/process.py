"""Flow and vocoder in a process of their own, with an interpreter lock of their own.

Every torch operation takes the lock twice. Two threads that compute small operations spend longer
handing it to each other than computing, so that beside the speech LM a hop takes twice as long as
alone (docs/engine.md). The worker thread itself is the one of `worker.py`; what goes through the
pipe are prompts, tokens and samples: 100 kB for a second of speech.
"""

from __future__ import annotations

import itertools
import logging
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from antiphon.engine.acoustic.child import HELLO, Child, RemoteTurn, Reply, gone
from antiphon.engine.acoustic.core import Stream
from antiphon.engine.acoustic.decoder import Decoder
from antiphon.engine.acoustic.interface import AcousticSettings, SpokenHop
from antiphon.engine.acoustic.settings import EngineSettings
from antiphon.engine.acoustic.worker import ThreadWorker
from antiphon.engine.errors import AntiphonError, SynthesisFailed
from antiphon.engine.voice.voice import AcousticPrompt

MakeDecoder = Callable[[], Decoder]
STEADY_S = 60.0
"""A process that lived so long is started again at once, one that did not after a while."""
LONGEST_PAUSE_S = 60.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Open:
    call: int
    turn: int
    prompt: AcousticPrompt
    settings: AcousticSettings


@dataclass(frozen=True, slots=True)
class _Speak:
    call: int
    turn: int
    tokens: tuple[int, ...]
    final: bool
    deadline: float | None


@dataclass(frozen=True, slots=True)
class _Drop:
    turn: int


@dataclass(frozen=True, slots=True)
class _Forget:
    voice: str


class ProcessWorker:
    """`AcousticWorker` in another process. One that dies is started again: at once, and where it
    keeps dying after 1, 2, 4, … at most 60 s."""

    def __init__(self, make: MakeDecoder, settings: EngineSettings) -> None:
        """Start loading; `make` must be picklable. Returns before the model is there."""
        self._make = make
        self._settings = settings
        self._numbers = itertools.count(HELLO + 1)
        self._lock = threading.Lock()
        self._stopping = False
        self._deaths = 0
        self._timer: threading.Timer | None = None
        self._begin()
        self._about = self._child.hello

    def _begin(self) -> None:
        self._began = time.monotonic()
        self._child = Child(serve, (self._make, self._settings), self._ended)

    @property
    def ready(self) -> bool:
        """See `AcousticWorker`."""
        return self._child.ready

    @property
    def sample_rate(self) -> int:
        """See `AcousticWorker`. Waits until the model is loaded.

        Raises:
            AntiphonError: it cannot be.
        """
        return self._about.result()[0]

    @property
    def codes(self) -> int:
        """See `AcousticWorker`. Waits until the model is loaded."""
        return self._about.result()[1]

    @property
    def cache_bytes(self) -> int:
        """See `AcousticWorker`; as of the last reply."""
        return self._child.cache_bytes

    def open(self, prompt: AcousticPrompt, settings: AcousticSettings) -> Future[RemoteTurn]:
        """See `AcousticWorker`."""
        child = self._child
        turn = RemoteTurn(next(self._numbers), child)
        call = next(self._numbers)
        return self._ask(call, turn, _Open(call, turn.number, prompt, settings))

    def submit(
        self, stream: RemoteTurn, tokens: Sequence[int], final: bool, deadline: float | None
    ) -> Future[SpokenHop]:
        """See `AcousticWorker`. `time.monotonic` is one clock for all processes of a machine."""
        call = next(self._numbers)
        message = _Speak(call, stream.number, tuple(tokens), final, deadline)
        return self._ask(call, stream, message)

    def drop(self, stream: RemoteTurn) -> None:
        """See `AcousticWorker`."""
        stream.child.forget(stream)
        stream.child.tell(_Drop(stream.number))

    def forget_voice(self, key: str) -> None:
        """See `AcousticWorker`."""
        self._child.tell(_Forget(key))

    def nbytes(self, stream: RemoteTurn) -> int:
        """See `AcousticWorker`; as of its last hop."""
        return stream.nbytes

    def stop(self) -> None:
        """See `AcousticWorker`. A process that does not end by itself is killed."""
        with self._lock:
            self._stopping = True
            if self._timer is not None:
                self._timer.cancel()
        self._child.stop()

    def _ask(self, call: int, turn: RemoteTurn, message: object) -> Future[Any]:
        if self._stopping:
            refused: Future[Any] = Future()
            refused.set_exception(gone("is closed"))
            return refused
        return turn.child.ask(call, turn, message)

    def _ended(self, child: Child) -> None:
        """Start another process; called from a thread of the one that ended."""
        with self._lock:
            never_loaded = child.hello is self._about and child.hello.exception() is not None
            if self._stopping or never_loaded:
                return
            self._deaths = 0 if time.monotonic() - self._began >= STEADY_S else self._deaths
            pause_s = min(2.0 ** (self._deaths - 1), LONGEST_PAUSE_S) if self._deaths else 0.0
            self._deaths += 1
            _log.warning(
                "the acoustic process ended (exit code %s); starting another in %g s",
                child.process.exitcode,
                pause_s,
            )
            self._timer = threading.Timer(pause_s, self._again)
            self._timer.daemon = True
            self._timer.start()

    def _again(self) -> None:
        with self._lock:
            if not self._stopping:
                self._begin()


def serve(connection: Connection[Any, Any], make: MakeDecoder, settings: EngineSettings) -> None:
    """The process: load the model, then do as told until the other side says stop or is gone."""
    # A signal for all of the server is answered by the server, which lets its turns end first.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(settings.threads)
    try:
        worker = ThreadWorker(make(), settings)
    except AntiphonError as error:
        connection.send(Reply(HELLO, error))
        return
    connection.send(Reply(HELLO, (worker.sample_rate, worker.codes)))
    with suppress(EOFError, OSError):
        _Server(connection, worker).run()
    worker.stop()


class _Server:
    """Passes messages to the worker thread and its results back."""

    def __init__(self, connection: Connection[Any, Any], worker: ThreadWorker) -> None:
        self._connection = connection
        self._worker = worker
        self._turns: dict[int, Stream] = {}
        self._lock = threading.Lock()

    def run(self) -> None:
        """Handle messages until one says stop."""
        while (message := self._connection.recv()) is not None:
            self._handle(message)

    def _handle(self, message: _Open | _Speak | _Drop | _Forget) -> None:
        worker = self._worker
        if isinstance(message, _Open):
            opened = worker.open(message.prompt, message.settings)
            opened.add_done_callback(lambda done: self._opened(message, done))
        elif isinstance(message, _Speak):
            stream = self._turns[message.turn]
            spoken = worker.submit(stream, message.tokens, message.final, message.deadline)
            spoken.add_done_callback(lambda done: self._spoken(message, done))
        elif isinstance(message, _Drop):
            dropped = self._turns.pop(message.turn, None)
            if dropped is not None:
                worker.drop(dropped)
        else:
            worker.forget_voice(message.voice)

    def _opened(self, message: _Open, done: Future[Stream]) -> None:
        error = done.exception()
        if error is None:
            self._turns[message.turn] = done.result()
        self._reply(message.call, _portable(error))

    def _spoken(self, message: _Speak, done: Future[SpokenHop]) -> None:
        error = done.exception()
        stream = self._turns.get(message.turn)
        held = 0 if stream is None else self._worker.nbytes(stream)
        self._reply(message.call, done.result() if error is None else _portable(error), held)

    def _reply(self, call: int, result: object, turn_bytes: int = 0) -> None:
        with self._lock, suppress(OSError):
            self._connection.send(Reply(call, result, self._worker.cache_bytes, turn_bytes))


def _portable(error: BaseException | None) -> AntiphonError | None:
    """An error that the other side can read; what torch raises may hold what cannot be sent."""
    if error is None or isinstance(error, AntiphonError):
        return error
    return SynthesisFailed(f"the acoustic engine failed: {type(error).__name__}")
