"""The thread that owns the acoustic core, and the messages it takes between two estimator calls."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

import torch

from antiphon.engine.acoustic.core import AcousticCore, Hop, Stream
from antiphon.engine.acoustic.interface import SpokenHop
from antiphon.engine.errors import AntiphonError, SynthesisFailed

Message = Callable[[], None]
Result = TypeVar("Result")


class Worker:
    """The thread that owns the core."""

    def __init__(self, core: AcousticCore, threads: int) -> None:
        self._core = core
        self._threads = threads
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._waiting: dict[int, tuple[Hop, Future[SpokenHop]]] = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="acoustic", daemon=True)
        self._thread.start()

    def tell(self, message: Message) -> None:
        """Have something done between two calls."""
        self._inbox.put(message)

    async def call(self, work: Callable[[], Result]) -> Result:
        """Have something done between two calls and return its result.

        Raises:
            SynthesisFailed: the worker has ended.
        """
        return await asyncio.wrap_future(self._deferred(work))

    def submit(
        self, stream: Stream, tokens: Sequence[int], final: bool, deadline: float | None
    ) -> Future[SpokenHop]:
        """Queue a hop of a stream."""
        future: Future[SpokenHop] = Future()
        asked_at = time.monotonic()

        def begin() -> None:
            if not future.cancelled():
                hop = self._core.submit(
                    stream, tokens, final=final, deadline=deadline, now=asked_at
                )
                self._waiting[id(hop)] = (hop, future)

        self._post(begin, future)
        return future

    def drop(self, stream: Stream) -> None:
        """Forget a stream's hop."""

        def forget() -> None:
            self._core.cancel(stream)
            gone = [key for key, (hop, _) in self._waiting.items() if hop.stream is stream]
            for key in gone:
                del self._waiting[key]

        self.tell(forget)

    def stop(self) -> None:
        """End the thread after the call it is in; all that waits fails."""
        self._stopping = True
        self.tell(lambda: None)
        self._thread.join()

    def _deferred(self, work: Callable[[], Result]) -> Future[Result]:
        future: Future[Result] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except Exception as error:
                    future.set_exception(error)

        self._post(run, future)
        return future

    def _post(self, message: Message, future: Future[Result]) -> None:
        self.tell(message)
        if self._stopping or not self._thread.is_alive():
            with suppress(Exception):
                future.set_exception(SynthesisFailed("the acoustic engine is closed"))

    def _run(self) -> None:
        torch.set_num_threads(self._threads)
        wait: float | None = None
        try:
            while not self._stopping:
                self._read_inbox(wait)
                finished, wake_at, busy = self._core.step(time.monotonic())
                while finished:
                    # Nothing here may hold on to a hop: its pages are free when its owner lets go.
                    self._resolve(finished.pop())
                if busy:
                    wait = 0.0
                else:
                    wait = None if wake_at is None else max(0.0, wake_at - time.monotonic())
        except Exception as error:
            self._end(SynthesisFailed(f"the acoustic worker died: {type(error).__name__}"))
            raise
        self._end(SynthesisFailed("the acoustic engine is closed"))

    def _read_inbox(self, wait: float | None) -> None:
        """Do what was asked for; wait for the first message if there is nothing to compute."""
        with suppress(queue.Empty):
            self._inbox.get(timeout=wait)() if wait != 0.0 else self._inbox.get_nowait()()
            while True:
                self._inbox.get_nowait()()

    def _resolve(self, hop: Hop) -> None:
        _, future = self._waiting.pop(id(hop), (hop, None))
        if future is None or not future.set_running_or_notify_cancel():
            return
        if isinstance(hop.result, AntiphonError):
            future.set_exception(hop.result)
        elif hop.result is not None:
            future.set_result(hop.result)

    def _end(self, error: SynthesisFailed) -> None:
        self._stopping = True
        self._read_inbox(0.0)
        for _, future in self._waiting.values():
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
        self._waiting.clear()
