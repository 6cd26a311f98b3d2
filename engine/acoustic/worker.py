"""The thread that owns the acoustic core, and the messages it takes between two estimator calls.

`ThreadWorker` runs in the interpreter of whoever made it; `process.py` puts one into another.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Protocol, TypeVar

import torch

from antiphon.engine.acoustic.core import AcousticCore, Hop, Stream
from antiphon.engine.acoustic.decoder import Decoder
from antiphon.engine.acoustic.interface import AcousticSettings, SpokenHop
from antiphon.engine.acoustic.settings import EngineSettings
from antiphon.engine.errors import AntiphonError, SynthesisFailed
from antiphon.engine.voice.voice import AcousticPrompt

Message = Callable[[], None]
Result = TypeVar("Result")
Handle = TypeVar("Handle")


class AcousticWorker(Protocol[Handle]):
    """Where flow and vocoder run. All futures are resolved from another thread.

    `Handle` is a turn, opaque to the caller, who keeps it for as long as the turn lasts.
    """

    @property
    def ready(self) -> bool:
        """Whether it works now; false while it is started again."""

    @property
    def sample_rate(self) -> int:
        """Samples a second."""

    @property
    def codes(self) -> int:
        """Size of the speech codebook."""

    @property
    def cache_bytes(self) -> int:
        """Bytes of keys and values in use, voices and turns together."""

    def open(self, prompt: AcousticPrompt, settings: AcousticSettings) -> Future[Handle]:
        """Start a turn in a voice. Fails with `SynthesisFailed` once the worker has ended."""

    def submit(
        self, stream: Handle, tokens: Sequence[int], final: bool, deadline: float | None
    ) -> Future[SpokenHop]:
        """Queue a hop of a turn."""

    def drop(self, stream: Handle) -> None:
        """Forget a turn and its hop."""

    def forget_voice(self, key: str) -> None:
        """Drop what is held for a voice, between two estimator calls."""

    def keep_warm(self, prompt: AcousticPrompt, settings: AcousticSettings) -> None:
        """Solve a voice's prompt again whenever this starts again, until the voice is forgotten."""

    def nbytes(self, stream: Handle) -> int:
        """Bytes that a turn alone holds."""

    def stop(self) -> None:
        """End; all that waits fails."""


class ThreadWorker:
    """The thread that owns the core."""

    def __init__(self, decoder: Decoder, settings: EngineSettings) -> None:
        self._streamer = decoder.streamer
        self._core = AcousticCore(decoder.streamer, decoder.vocoder, settings)
        self.sample_rate = self._core.sample_rate
        self.codes = decoder.codes
        self._threads = settings.threads
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._waiting: dict[int, tuple[Hop, Future[SpokenHop]]] = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="acoustic", daemon=True)
        self._thread.start()

    @property
    def ready(self) -> bool:
        """See `AcousticWorker`."""
        return self._thread.is_alive()

    @property
    def cache_bytes(self) -> int:
        """See `AcousticWorker`."""
        return self._core.cache_bytes

    def beat(self) -> Future[None]:
        """A future that is done between two calls of the model: a sign of life."""
        return self._deferred(lambda: None)

    def keep_warm(self, prompt: AcousticPrompt, settings: AcousticSettings) -> None:
        """See `AcousticWorker`: a thread is not started again."""

    def open(self, prompt: AcousticPrompt, settings: AcousticSettings) -> Future[Stream]:
        """See `AcousticWorker`."""
        asked_at = time.monotonic()

        def start() -> Stream:
            voice = self._streamer.voice(
                torch.from_numpy(prompt.tokens.astype("int64")),
                torch.from_numpy(prompt.mel.astype("float32")),
                torch.from_numpy(prompt.embedding.astype("float32")),
            )
            return self._core.open(prompt.key, voice, settings, asked_at)

        return self._deferred(start)

    def forget_voice(self, key: str) -> None:
        """See `AcousticWorker`."""
        self._inbox.put(lambda: self._core.forget_voice(key))

    def submit(
        self, stream: Stream, tokens: Sequence[int], final: bool, deadline: float | None
    ) -> Future[SpokenHop]:
        """See `AcousticWorker`."""
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
        """See `AcousticWorker`."""

        def forget() -> None:
            self._core.cancel(stream)
            gone = [key for key, (hop, _) in self._waiting.items() if hop.stream is stream]
            for key in gone:
                del self._waiting[key]

        self._inbox.put(forget)

    def nbytes(self, stream: Stream) -> int:
        """See `AcousticWorker`."""
        return stream.nbytes

    def stop(self) -> None:
        """See `AcousticWorker`: ends after the call it is in."""
        self._stopping = True
        self._inbox.put(lambda: None)
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
        self._inbox.put(message)
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
