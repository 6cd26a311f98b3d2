"""One turn on an engine: text in, encoded messages out, everything freed at its end."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

import structlog

from antiphon.engine.errors import AntiphonError, SynthesisFailed
from antiphon.engine.interface import (
    Engine,
    SpeechAudio,
    SpeechFinished,
    SpeechProgress,
    SpeechSession,
)
from antiphon.server.admission import Admission, Slot
from antiphon.server.audio import AudioFormat, Encoder, make_encoder
from antiphon.server.errors import NotReady
from antiphon.server.metrics import Metrics
from antiphon.server.turn_events import Failed, Finished, OpenTurn, Progressed, Spoke

# One message of these takes far less than a millisecond; the others are encoded in a thread.
_QUICK_FORMATS = frozenset({AudioFormat.PCM, AudioFormat.WAV, AudioFormat.ULAW, AudioFormat.ALAW})
_STEPS_A_THREAD = 5
"""Encoder steps for one trip to a thread: 100 ms of Opus, about 3 ms of work."""
_encoder_threads = ThreadPoolExecutor(
    max(2, (os.cpu_count() or 1) // 2), thread_name_prefix="encode"
)
"""Few. What is encoded is heard later; the clocks that send what is heard now need a core at once,
and would have to share theirs with every thread that encodes."""
_SLOT_WAIT_S = 5.0
"""How long a turn waits for its predecessor in the same context to free what it holds."""

_log = structlog.get_logger("antiphon.turn")


class Reports(Protocol):
    """Where a turn reports to."""

    async def audio(self, event: Spoke) -> None:
        """Hand a message over, waiting for room."""

    async def report(self, event: Progressed | Finished | Failed) -> None:
        """Anything else."""


class _Flushed:
    """Stands for a flush between pieces of text."""


class _Ended:
    """Stands for the end of the text."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What the turns of a server share."""

    sessions: Admission
    metrics: Metrics


class SpeakingTurn:
    """Runs one turn as a task. `feed`, `flush`, `end` and `stop` never wait."""

    def __init__(
        self,
        opened: OpenTurn,
        engine: Engine,
        resources: Resources,
        reports: Reports,
        predecessor: SpeakingTurn | None,
    ) -> None:
        self._id = opened.turn
        self._settings = opened.settings
        self._engine = engine
        self._resources = resources
        self._reports = reports
        self._predecessor = predecessor
        # Bounded by the turn machine, which counts the characters that are not spoken yet.
        self._inbox: deque[str | _Flushed | _Ended] = deque()
        self._fed = asyncio.Event()
        self._work_s = 0.0
        self._stages: dict[str, float] = {}
        self._encoding_since: float | None = None
        self._heard = False
        self._accounted = 0
        self.task = asyncio.create_task(self._run(), name=f"turn-{opened.turn}")

    @property
    def model(self) -> str:
        """Name of the engine that speaks."""
        return self._settings.model

    def feed(self, text: str) -> None:
        """Add text."""
        self._put(text)

    def flush(self) -> None:
        """Speak what is buffered. Several in a row are one."""
        if not (self._inbox and isinstance(self._inbox[-1], _Flushed)):
            self._put(_Flushed())

    def end(self) -> None:
        """The text is complete."""
        self._put(_Ended())

    def stop(self) -> None:
        """Cancel. The task ends once the engine has freed what the turn held."""
        if asyncio.current_task() is not self.task:
            self.task.cancel()

    def _put(self, item: str | _Flushed | _Ended) -> None:
        self._inbox.append(item)
        self._fed.set()

    async def _run(self) -> None:
        error: AntiphonError | None = None
        finished: SpeechFinished | None = None
        try:
            finished = await self._speak()
        except* AntiphonError as group:
            error = _first(group)
        except* Exception as group:
            cause = _first_exception(group)
            # The message of a foreign exception may quote text; its type and place do not.
            _log.error("turn_crashed", turn=self._id, error=type(cause).__name__, at=_place(cause))
            error = SynthesisFailed("Speaking failed because of a fault inside the server.")
        self._predecessor = None
        if error is not None:
            await self._reports.report(Failed(self._id, error))
        elif finished is not None:
            await self._reports.report(Finished(self._id, finished.reason.value))

    async def _speak(self) -> SpeechFinished:
        model = self._settings.model
        if not self._engine.ready:
            raise NotReady(
                f"The model {model} is being restarted.",
                retry_after_s=self._resources.sessions.retry_after_s,
            )
        slot = await self._slot()
        metrics = self._resources.metrics
        try:
            with metrics.sessions.labels(model).track_inprogress():
                session = await self._engine.open_session(self._settings.request)
                try:
                    return await self._converse(session)
                finally:
                    await session.cancel()
        finally:
            slot.release()

    async def _slot(self) -> Slot:
        before = self._predecessor.task if self._predecessor else None
        if before is not None and not before.done():
            # A turn that was just cancelled frees its slot within a model step; at full house its
            # successor would be refused without this wait.
            try:
                return self._resources.sessions.acquire()
            except AntiphonError:
                await asyncio.wait({before}, timeout=_SLOT_WAIT_S)
        return self._resources.sessions.acquire()

    async def _converse(self, session: SpeechSession) -> SpeechFinished:
        async with asyncio.TaskGroup() as group:
            feeding = group.create_task(self._feed(session))
            finished = await self._listen(session)
            feeding.cancel()
        return finished

    async def _feed(self, session: SpeechSession) -> None:
        while True:
            while self._inbox:
                item = self._inbox.popleft()
                if isinstance(item, str):
                    await session.push_text(item)
                elif isinstance(item, _Flushed):
                    await session.flush()
                else:
                    await session.end_text()
                    return
            self._fed.clear()
            await self._fed.wait()

    async def _listen(self, session: SpeechSession) -> SpeechFinished:
        settings = self._settings
        encoder = make_encoder(
            settings.format,
            settings.sample_rate,
            self._engine.capabilities.sample_rate,
            opus_tuning=settings.opus_tuning,
            gain_db=settings.gain_db,
        )
        metrics = self._resources.metrics
        async for event in session.events():
            match event:
                case SpeechAudio(audio, timings, cached_ids):
                    metrics.stages(settings.model, timings)
                    for count in cached_ids:
                        metrics.cached_ids.labels(settings.model).observe(count)
                    self._work_s += _work_s(timings)
                    self._on_the_way(timings)
                    await self._encode(encoder, encoder.steps(audio))
                case SpeechProgress(text, characters, start_s, end_s):
                    await self._reports.report(
                        Progressed(self._id, text, characters, start_s, end_s)
                    )
                case SpeechFinished():
                    await self._encode(encoder, iter([encoder.finish]))
                    metrics.speech_tokens.labels(settings.model).inc(event.speech_tokens)
                    return event
        raise SynthesisFailed("The engine ended a turn without saying why.")

    async def _encode(
        self, encoder: Encoder, steps: Iterator[list[bytes] | Callable[[], list[bytes]]]
    ) -> None:
        """Run encoder steps one by one and hand each one's messages over."""
        quick = encoder.format in _QUICK_FORMATS
        while True:
            if quick:
                messages = _next_messages(steps, 1)
            else:
                # One at first, so that the listener does not wait for the others.
                count = _STEPS_A_THREAD if encoder.samples_out else 1
                loop = asyncio.get_running_loop()
                messages = await loop.run_in_executor(
                    _encoder_threads, _next_messages, steps, count
                )
            if messages is None:
                return
            if messages:
                # Some codecs keep samples for a later message, which then accounts for them.
                samples = encoder.samples_out - self._accounted
                self._accounted = encoder.samples_out
                await self._hand_over(messages, samples)
            # Lets the others of this loop run between the steps of a long piece of audio.
            await asyncio.sleep(0)

    async def _hand_over(self, messages: list[bytes], samples: int) -> None:
        for i, message in enumerate(messages):
            # A step's samples are shared out evenly; exact where a message is a frame.
            share = samples * (i + 1) // len(messages) - samples * i // len(messages)
            work_s, self._work_s = self._work_s, 0.0
            seconds = share / self._settings.sample_rate
            stages = {} if self._heard else self._until_encoded()
            self._heard = True
            await self._reports.audio(Spoke(self._id, message, share, seconds, work_s, stages))

    def _on_the_way(self, timings: Mapping[str, float]) -> None:
        """Add up what the first message of the turn waits for."""
        if not self._heard:
            for stage, seconds in timings.items():
                self._stages[stage] = self._stages.get(stage, 0.0) + seconds
            self._encoding_since = time.monotonic()

    def _until_encoded(self) -> dict[str, float]:
        if self._encoding_since is not None:
            self._stages["encode"] = time.monotonic() - self._encoding_since
        return self._stages


def _work_s(timings: Mapping[str, float]) -> float:
    """Seconds of synthesis; `text` is the time in which text was waited for."""
    return sum(seconds for stage, seconds in timings.items() if stage != "text")


def _next_messages(
    steps: Iterator[list[bytes] | Callable[[], list[bytes]]], count: int
) -> list[bytes] | None:
    """Messages of the next steps; None at the end (StopIteration cannot cross a thread)."""
    taken = list(islice(steps, count))
    if not taken:
        return None
    return [message for step in taken for message in (step() if callable(step) else step)]


def _first(group: BaseExceptionGroup[AntiphonError]) -> AntiphonError:
    found = _first_exception(group)
    assert isinstance(found, AntiphonError)
    return found


def _first_exception(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _place(error: BaseException) -> str:
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return f"{at.tb_frame.f_code.co_filename.rsplit('/', 1)[-1]}:{at.tb_lineno}" if at else "?"
