"""The inside of the acoustic engine's process: what it is told, and what it answers."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch

from antiphon.engine.acoustic.child import BEAT, HELLO, Ping, Reply
from antiphon.engine.acoustic.core import Stream
from antiphon.engine.acoustic.decoder import Decoder
from antiphon.engine.acoustic.interface import AcousticSettings, SpokenHop
from antiphon.engine.acoustic.settings import EngineSettings
from antiphon.engine.acoustic.worker import ThreadWorker
from antiphon.engine.errors import AntiphonError, SynthesisFailed
from antiphon.engine.voice.voice import AcousticPrompt

MakeDecoder = Callable[[], Decoder]


@dataclass(frozen=True, slots=True)
class Open:
    """Start a turn; the reply is empty."""

    call: int
    turn: int
    prompt: AcousticPrompt
    settings: AcousticSettings


@dataclass(frozen=True, slots=True)
class Speak:
    """Speak a hop of a turn; the reply is a `SpokenHop`."""

    call: int
    turn: int
    tokens: tuple[int, ...]
    final: bool
    deadline: float | None


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget a turn and its hop; no reply."""

    turn: int


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop what is held for a voice; no reply."""

    voice: str


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

    def _handle(self, message: Open | Speak | Drop | Forget | Ping) -> None:
        worker = self._worker
        if isinstance(message, Ping):
            worker.beat().add_done_callback(
                lambda done: self._reply(BEAT, _portable(done.exception()))
            )
        elif isinstance(message, Open):
            opened = worker.open(message.prompt, message.settings)
            opened.add_done_callback(lambda done: self._opened(message, done))
        elif isinstance(message, Speak):
            stream = self._turns[message.turn]
            spoken = worker.submit(stream, message.tokens, message.final, message.deadline)
            spoken.add_done_callback(lambda done: self._spoken(message, done))
        elif isinstance(message, Drop):
            dropped = self._turns.pop(message.turn, None)
            if dropped is not None:
                worker.drop(dropped)
        else:
            worker.forget_voice(message.voice)

    def _opened(self, message: Open, done: Future[Stream]) -> None:
        error = done.exception()
        if error is None:
            self._turns[message.turn] = done.result()
        self._reply(message.call, _portable(error))

    def _spoken(self, message: Speak, done: Future[SpokenHop]) -> None:
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
