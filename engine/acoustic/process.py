"""Flow and vocoder in a process of their own, with an interpreter lock of their own.

Every torch operation takes the lock twice. Two threads that compute small operations spend longer
handing it to each other than computing, so that beside the speech LM a hop takes twice as long as
alone (docs/engine.md). The worker thread itself is the one of `worker.py`; what goes through the
pipe are prompts, tokens and samples: 100 kB for a second of speech.
"""

from __future__ import annotations

import itertools
import multiprocessing
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from antiphon.engine.acoustic.core import Stream
from antiphon.engine.acoustic.decoder import Decoder
from antiphon.engine.acoustic.interface import AcousticSettings, SpokenHop
from antiphon.engine.acoustic.settings import EngineSettings
from antiphon.engine.acoustic.worker import ThreadWorker
from antiphon.engine.errors import AntiphonError, SynthesisFailed
from antiphon.engine.voice.voice import AcousticPrompt

MakeDecoder = Callable[[], Decoder]
HELLO = 0
"""Number of the reply that says how the model is to be used, or why it cannot be loaded."""
STOP_TIMEOUT_S = 10.0


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


@dataclass(frozen=True, slots=True)
class _Reply:
    call: int
    result: Any
    cache_bytes: int = 0
    turn_bytes: int = 0


@dataclass(slots=True, eq=False)
class RemoteTurn:
    """A turn whose state lies in the process."""

    number: int
    process: BaseProcess
    nbytes: int = 0


class ProcessWorker:
    """`AcousticWorker` in another process. One that dies is started again for the next turn."""

    def __init__(self, make: MakeDecoder, settings: EngineSettings) -> None:
        """Start loading; `make` must be picklable. Returns before the model is there."""
        self._make = make
        self._settings = settings
        self._numbers = itertools.count(HELLO + 1)
        self._lock = threading.RLock()
        self._stopping = False
        self._cache_bytes = 0
        self._hello: Future[tuple[int, int]] = Future()
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=serve, args=(theirs, self._make, self._settings), name="acoustic", daemon=True
        )
        self._pending: dict[int, tuple[Future[Any], RemoteTurn | None]] = {}
        self._process.start()
        theirs.close()
        threading.Thread(
            target=self._read, args=(self._connection, self._process), daemon=True
        ).start()

    @property
    def sample_rate(self) -> int:
        """See `AcousticWorker`. Waits until the model is loaded.

        Raises:
            AntiphonError: it cannot be.
        """
        return self._hello.result()[0]

    @property
    def codes(self) -> int:
        """See `AcousticWorker`. Waits until the model is loaded."""
        return self._hello.result()[1]

    @property
    def cache_bytes(self) -> int:
        """See `AcousticWorker`; as of the last reply."""
        return self._cache_bytes

    def open(self, prompt: AcousticPrompt, settings: AcousticSettings) -> Future[RemoteTurn]:
        """See `AcousticWorker`."""
        with self._lock:
            if not self._stopping and not self._process.is_alive() and self._hello.done():
                self._start()
            turn = RemoteTurn(next(self._numbers), self._process)
            return self._call(turn, lambda call: _Open(call, turn.number, prompt, settings))

    def submit(
        self, stream: RemoteTurn, tokens: Sequence[int], final: bool, deadline: float | None
    ) -> Future[SpokenHop]:
        """See `AcousticWorker`. `time.monotonic` is one clock for all processes of a machine."""
        return self._call(
            stream, lambda call: _Speak(call, stream.number, tuple(tokens), final, deadline)
        )

    def drop(self, stream: RemoteTurn) -> None:
        """See `AcousticWorker`."""
        with self._lock:
            gone = [call for call, (_, turn) in self._pending.items() if turn is stream]
            for call in gone:
                del self._pending[call]
            if stream.process is self._process:
                self._send(_Drop(stream.number))

    def forget_voice(self, key: str) -> None:
        """See `AcousticWorker`."""
        self._send(_Forget(key))

    def nbytes(self, stream: RemoteTurn) -> int:
        """See `AcousticWorker`; as of its last hop."""
        return stream.nbytes

    def stop(self) -> None:
        """See `AcousticWorker`. A process that does not end by itself is killed."""
        self._stopping = True
        self._send(None)
        self._process.join(STOP_TIMEOUT_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _call(self, turn: RemoteTurn, message: Callable[[int], object]) -> Future[Any]:
        future: Future[Any] = Future()
        with self._lock:
            call = next(self._numbers)
            self._pending[call] = (future, turn)
            alive = turn.process is self._process and not self._stopping
            if not (alive and self._send(message(call))):
                del self._pending[call]
                future.set_exception(self._gone())
        return future

    def _send(self, message: object) -> bool:
        with self._lock:
            try:
                self._connection.send(message)
            except OSError:
                return False
        return True

    def _gone(self) -> SynthesisFailed:
        what = "is closed" if self._stopping else "ended unexpectedly"
        return SynthesisFailed(f"the acoustic engine {what}")

    def _read(self, connection: Connection[Any, Any], process: BaseProcess) -> None:
        """Resolve futures by the replies of one process until it ends."""
        with suppress(EOFError, OSError):
            while True:
                self._resolve(connection.recv())
        process.join()
        with self._lock:
            if process is not self._process:
                return
            lost = [future for future, _ in self._pending.values()]
            self._pending.clear()
            self._cache_bytes = 0
        for future in [*lost, self._hello]:
            if not future.done() and future.set_running_or_notify_cancel():
                future.set_exception(self._gone())

    def _resolve(self, reply: _Reply) -> None:
        self._cache_bytes = reply.cache_bytes
        if reply.call == HELLO:
            if not self._hello.done():
                _settle(self._hello, reply.result)
            return
        with self._lock:
            future, turn = self._pending.pop(reply.call, (None, None))
        if future is None or not future.set_running_or_notify_cancel():
            return
        if turn is not None:
            turn.nbytes = reply.turn_bytes
        _settle(future, turn if reply.result is None else reply.result)


def _settle(future: Future[Any], result: object) -> None:
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)


def serve(connection: Connection[Any, Any], make: MakeDecoder, settings: EngineSettings) -> None:
    """The process: load the model, then do as told until the other side says stop or is gone."""
    # A signal for all of the server is answered by the server, which lets its turns end first.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    torch.set_num_threads(settings.threads)
    try:
        worker = ThreadWorker(make(), settings)
    except AntiphonError as error:
        connection.send(_Reply(HELLO, error))
        return
    connection.send(_Reply(HELLO, (worker.sample_rate, worker.codes)))
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
            self._connection.send(_Reply(call, result, self._worker.cache_bytes, turn_bytes))


def _portable(error: BaseException | None) -> AntiphonError | None:
    """An error that the other side can read; what torch raises may hold what cannot be sent."""
    if error is None or isinstance(error, AntiphonError):
        return error
    return SynthesisFailed(f"the acoustic engine failed: {type(error).__name__}")
