"""Flow and vocoder in a process of their own, with an interpreter lock of their own.

Every torch operation takes the lock twice. Two threads that compute small operations spend longer
handing it to each other than computing, so that beside the speech LM a hop takes twice as long as
alone (docs/engine.md). The worker thread itself is the one of `worker.py`; what goes through the
pipe are prompts, tokens and samples: 100 kB for a second of speech.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from multiprocessing.util import Finalize
from typing import Any

from antiphon.engine.acoustic.child import HELLO, Child, RemoteTurn, gone
from antiphon.engine.acoustic.interface import AcousticSettings, SpokenHop
from antiphon.engine.acoustic.process_main import (
    Drop,
    Forget,
    MakeDecoder,
    Open,
    Speak,
    serve,
)
from antiphon.engine.acoustic.settings import EngineSettings
from antiphon.engine.acoustic.watchdog import Silence
from antiphon.engine.errors import AntiphonError
from antiphon.engine.voice.voice import AcousticPrompt

STEADY_S = 60.0
"""A process that lived so long is started again at once, one that did not after a while."""
LONGEST_PAUSE_S = 60.0

_log = logging.getLogger(__name__)


class ProcessWorker:
    """`AcousticWorker` in another process. One that dies, or hangs and is killed, is started again:
    at once, and where it keeps dying after 1, 2, 4, … at most 60 s. It is ready once the voices
    that were warm are warm again."""

    def __init__(self, make: MakeDecoder, settings: EngineSettings) -> None:
        """Start loading; `make` must be picklable. Returns before the model is there."""
        self._make = make
        self._settings = settings
        self._numbers = itertools.count(HELLO + 1)
        self._lock = threading.Lock()
        self._stopping = False
        self._deaths = 0
        self._timer: threading.Timer | None = None
        self._kept: dict[tuple[str, AcousticSettings], AcousticPrompt] = {}
        self._warming: Child | None = None
        # The process ignores the signal with which the interpreter ends its daemons and then waits
        # for them: a program that fails before it stops the engine would never end.
        self._at_exit = Finalize(None, self._kill, exitpriority=10)
        self._begin()
        self._about = self._child.hello

    def _begin(self) -> None:
        self._began = time.monotonic()
        silence = Silence(self._settings.hang_limit_s, self._settings.loading_limit_s)
        self._child = Child(serve, (self._make, self._settings), self._ended, silence)

    @property
    def ready(self) -> bool:
        """See `AcousticWorker`."""
        return self._child.ready and self._warming is not self._child

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
        return self._open(self._child, prompt, settings)

    def _open(
        self, child: Child, prompt: AcousticPrompt, settings: AcousticSettings
    ) -> Future[RemoteTurn]:
        turn = RemoteTurn(next(self._numbers), child)
        call = next(self._numbers)
        return self._ask(call, turn, Open(call, turn.number, prompt, settings))

    def submit(
        self, stream: RemoteTurn, tokens: Sequence[int], final: bool, deadline: float | None
    ) -> Future[SpokenHop]:
        """See `AcousticWorker`. `time.monotonic` is one clock for all processes of a machine."""
        call = next(self._numbers)
        message = Speak(call, stream.number, tuple(tokens), final, deadline)
        return self._ask(call, stream, message)

    def drop(self, stream: RemoteTurn) -> None:
        """See `AcousticWorker`."""
        stream.child.forget(stream)
        stream.child.tell(Drop(stream.number))

    def forget_voice(self, key: str) -> None:
        """See `AcousticWorker`."""
        # Without the lock, which is held while a process is started: the loop waits for nothing.
        for kept in [kept for kept in self._kept if kept[0] == key]:
            del self._kept[kept]
        self._child.tell(Forget(key))

    def keep_warm(self, prompt: AcousticPrompt, settings: AcousticSettings) -> None:
        """See `AcousticWorker`."""
        self._kept[prompt.key, settings] = prompt

    def nbytes(self, stream: RemoteTurn) -> int:
        """See `AcousticWorker`; as of its last hop."""
        return stream.nbytes

    def stop(self) -> None:
        """See `AcousticWorker`. A process that does not end by itself is killed."""
        self._at_exit.cancel()
        self._start_no_more()
        self._child.stop()

    def _kill(self) -> None:
        self._start_no_more()
        self._child.process.kill()

    def _start_no_more(self) -> None:
        with self._lock:
            self._stopping = True
            if self._timer is not None:
                self._timer.cancel()

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
            if self._stopping:
                return
            self._begin()
            self._warming = child = self._child
        for name, prompt in tuple(self._kept.items()):
            if name in self._kept:  # not forgotten meanwhile
                with suppress(AntiphonError):
                    self._warm(child, prompt, name[1])
        self._warming = None if self._warming is child else self._warming

    def _warm(self, child: Child, prompt: AcousticPrompt, settings: AcousticSettings) -> None:
        """Solve a voice's prompt; waits for it."""
        turn = self._open(child, prompt, settings).result()
        try:
            self.submit(turn, (), False, None).result()
        finally:
            self.drop(turn)
