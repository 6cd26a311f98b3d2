"""The WebSocket bridge of every phone provider: a thin shell around a dialect and a call.

One task receives; one sends, and nothing else does, so that a clear stands behind all audio that
was sent before it and before all that comes after.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import structlog
from starlette.types import Receive, Scope, Send

from antiphon.engine.errors import AntiphonError
from antiphon.server.calls.call import Call
from antiphon.server.calls.playout import FRAME_S, Frame
from antiphon.server.calls.registry import Calls
from antiphon.server.calls.spec import CallKind, CallSpec
from antiphon.server.engines import Wanted
from antiphon.server.errors import DeadlineExceeded, MalformedMessage, WrongOrder, outcome
from antiphon.server.phone.asterisk import AsteriskDialect
from antiphon.server.phone.audio import phone_frames, to_samples
from antiphon.server.phone.dialect import Dialect
from antiphon.server.phone.events import (
    Flow,
    Heard,
    Media,
    PhoneEvent,
    Pressed,
    Started,
    Stopped,
)
from antiphon.server.phone.pacing import Lead
from antiphon.server.transport import SCOPE_KEY
from antiphon.server.transport import Flow as TransportFlow
from antiphon.server.turn_events import Done, Effect

_START_S = 10.0
"""From the handshake to the message that starts the audio."""
_LONGEST_MEDIA = 64_000
"""Bytes of one message of caller audio: seconds, where real ones hold 20 ms."""
_MARK_EVERY = 10
"""Frames between two marks: every 200 ms the agent learns how far the caller has heard."""

_log = structlog.get_logger("antiphon.phone")


class PhoneBridge:
    """One call over one WebSocket, already accepted."""

    def __init__(
        self, calls: Calls, dialect: Dialect, scope: Scope, receive: Receive, send: Send, owner: str
    ) -> None:
        self._calls = calls
        self._dialect = dialect
        self._receive = receive
        self._send = send
        self._owner = owner
        self._transport: TransportFlow = scope["extensions"][SCOPE_KEY]
        self._patience_s = calls.house.config.server.limits.slow_reader_s
        self._lead = Lead(dialect.lead_s)
        self._gone = False
        self._clear = False
        self._room = asyncio.Event()
        self._room.set()
        self._wake = asyncio.Event()
        self._marks = 0
        self._since_mark = 0
        self._sent: tuple[int, float] | None = None
        """Turn and position of what was sent last."""
        self._played: dict[str, tuple[int, float]] = {}
        """The same for each mark that has not come back."""

    async def run(self) -> None:
        """Serve the call from its start to its end."""
        code, reason = 1000, "the call ended"
        try:
            async with asyncio.timeout(_START_S):
                started = await self._start()
            if started is not None:
                async with self._calls.open(self._spec(started)) as call:
                    await self._live(call, started)
        except TimeoutError:
            error: AntiphonError = DeadlineExceeded(
                "The call did not start in time.", field="start", limit=_START_S
            )
            code, reason = outcome(error).close_code, error.code
        except AntiphonError as refused:
            self._calls.house.metrics.errors.labels(refused.code).inc()
            _log.warning("phone_refused", peer=self._dialect.name, error=refused.code)
            code, reason = outcome(refused).close_code, refused.code
        await self._finish(code, reason)

    async def _start(self) -> Started | None:
        """Wait for the start; None if the peer goes away before."""
        while True:
            match await self._next():
                case Started() as started:
                    return started
                case Stopped():
                    return None
                case Media():
                    raise WrongOrder("Audio came before the start of the call.", field="event")

    def _spec(self, started: Started) -> CallSpec:
        wishes = {
            name: started.parameters[name]
            for name in ("voice", "model", "language")
            if started.parameters.get(name)
        }
        return CallSpec(
            kind=CallKind.PHONE,
            peer=self._dialect.name,
            audio=started.audio,
            sample_rate=started.sample_rate,
            frames=phone_frames(started.audio, started.sample_rate),
            wanted=Wanted(**wishes),  # type: ignore[arg-type]
            owner=self._owner,
            alias=started.alias,
            details=dict(started.details),
        )

    async def _live(self, call: Call, started: Started) -> None:
        call.on_drop = self._dropped
        if isinstance(self._dialect, AsteriskDialect):
            for message in self._dialect.start():
                await self._put(message)
        try:
            async with asyncio.TaskGroup() as tasks:
                work = [
                    tasks.create_task(self._listen(call, started)),
                    tasks.create_task(self._speak(call)),
                ]
                await call.ended.wait()
                for task in work:
                    task.cancel()
        except* AntiphonError as group:
            error: BaseException = group
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            assert isinstance(error, AntiphonError)
            call.hang_up(error.code)
            raise error from None

    # From the peer

    async def _listen(self, call: Call, started: Started) -> None:
        while True:
            match await self._next():
                case Media(payload):
                    samples = to_samples(started.audio, payload)
                    if not call.caller.push(samples, started.sample_rate):
                        await asyncio.sleep(FRAME_S)
                case Pressed(digit):
                    call.press(digit)
                case Heard(mark):
                    self._heard(call, mark)
                case Flow(room):
                    self._room.set() if room else self._room.clear()
                case Started():
                    raise WrongOrder("The call has started already.", field="event")
                case Stopped(reason):
                    call.hang_up(reason)
                    return

    async def _next(self) -> PhoneEvent:
        message = await self._receive()
        if message["type"] == "websocket.disconnect":
            self._gone = True
            return Stopped("the peer went away")
        body: str | bytes = message.get("text") or message.get("bytes") or b""
        event = self._dialect.read(body)
        if isinstance(event, Media) and len(event.payload) > _LONGEST_MEDIA:
            raise MalformedMessage(
                "A message of audio is too long.", field="media", limit=_LONGEST_MEDIA
            )
        return event

    def _heard(self, call: Call, mark: str) -> None:
        call.report(call.playout.heard(mark))
        if mark in self._played:
            call.played(*self._played.pop(mark))

    # To the peer

    async def _speak(self, call: Call) -> None:
        frames: list[Frame] = []
        while True:
            if self._clear:
                frames.clear()
                await self._send_clear()
            if call.playout.is_empty:
                await self._either(call.playout.filled())
                continue
            wait_s = self._lead.wait_s(time.monotonic())
            if wait_s > 0:
                await self._either(asyncio.sleep(wait_s))
                continue
            if not self._room.is_set():
                await self._either(self._room.wait())
                continue
            await self._step(call, frames)

    async def _step(self, call: Call, frames: list[Frame]) -> None:
        step = call.playout.next()
        if frames and any(isinstance(effect, Done) for effect in step.reports):
            # The rest of a turn, filled up with silence.
            missing = self._dialect.frames_per_message - len(frames)
            await self._send_frames(call, frames, call.spec.frames.silence * missing)
        await self._report(call, step.reports)
        if step.frame is None:
            return
        frames.append(step.frame)
        if len(frames) >= self._dialect.frames_per_message:
            await self._send_frames(call, frames, b"")

    async def _send_frames(self, call: Call, frames: list[Frame], filling: bytes) -> None:
        payload = b"".join(frame.payload for frame in frames) + filling
        count, turn = len(frames), frames[-1].turn
        frames.clear()
        self._lead.sent(self._dialect.frames_per_message, time.monotonic())
        await self._put(self._dialect.media(payload))
        if self._clear:
            return
        self._since_mark += count
        self._sent = (turn, call.playout.played_s(turn))
        if self._since_mark >= _MARK_EVERY and self._dialect.has_marks:
            await self._mark(call, [])

    async def _report(self, call: Call, reports: list[Effect]) -> None:
        """Let the listeners know once the caller has heard what stands before."""
        if not reports:
            return
        if self._dialect.has_marks:
            await self._mark(call, reports)
            return
        mark = self._new_mark()
        call.playout.defer(mark, reports)
        ahead_s = self._lead.ahead_s(time.monotonic())
        asyncio.get_running_loop().call_later(ahead_s, self._heard, call, mark)

    async def _mark(self, call: Call, reports: list[Effect]) -> None:
        mark = self._new_mark()
        self._since_mark = 0
        if self._sent is not None:
            self._played[mark] = self._sent
        call.playout.defer(mark, reports)
        message = self._dialect.mark(mark)
        assert message is not None
        await self._put(message)

    def _new_mark(self) -> str:
        self._marks += 1
        return f"m{self._marks}"

    def _dropped(self) -> None:
        """Barge-in: what the peer holds goes as well, before anything else is sent."""
        self._clear = True
        self._sent = None
        self._played.clear()
        self._wake.set()

    async def _send_clear(self) -> None:
        self._clear = False
        self._since_mark = 0
        self._lead.cleared(time.monotonic())
        if (message := self._dialect.clear()) is not None:
            await self._put(message)
        if isinstance(self._dialect, AsteriskDialect):
            await self._put(self._dialect.after_clear())

    async def _either(self, waiting: Any) -> None:
        """Wait for something, or for a barge-in."""
        self._wake.clear()
        if self._clear:
            waiting.close()
            return
        tasks = {asyncio.ensure_future(waiting), asyncio.ensure_future(self._wake.wait())}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()

    async def _put(self, message: str | bytes) -> None:
        await self._transport.writable(self._patience_s)
        kind = "bytes" if isinstance(message, bytes) else "text"
        await self._send({"type": "websocket.send", kind: message})

    async def _finish(self, code: int, reason: str) -> None:
        if self._gone:
            return
        if not self._transport.is_writable:
            self._transport.close_stalled(code, reason)
            return
        if (message := self._dialect.hang_up()) is not None:
            await self._send({"type": "websocket.send", "text": message})
        await self._send({"type": "websocket.close", "code": code, "reason": reason})
