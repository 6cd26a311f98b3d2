"""What waits to be heard on one call, in order. Free of I/O.

Effects of the turn machine go in as they happen, far ahead of the listener; they come out when the
listener reaches them. Audio is cut into frames of one length, which a media clock takes one by
one; between them stand the effects to be reported once everything before them was handed over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field, replace

from antiphon.engine.interface import FinishReason
from antiphon.server.turn_events import Audio, Done, Effect, Progress

FRAME_S = 0.02
LATE_S = 0.02
"""A frame that leaves a frame later than it should: jitter buffers begin to notice."""
PREROLL = 3
"""For peers that play at once: 60 ms, less than any first hop."""


@dataclass(frozen=True, slots=True)
class FrameFormat:
    """How a call's audio is cut."""

    silence: bytes
    """One frame of silence."""
    frame_bytes: int | None = None
    """Bytes of 20 ms; None where each message is a frame (Opus)."""
    preroll: int = 0
    """Frames of a turn that must wait before its first is handed to a peer that plays at once, so
    that the second is not missed by a hair. They come together anyway, so this costs next to
    nothing; after as many ticks the turn begins all the same."""

    def cut(self, payload: bytes) -> list[bytes]:
        """Frames of a message. The encoder pads, so nothing is left over."""
        if self.frame_bytes is None:
            return [payload]
        size = self.frame_bytes
        return [payload[i : i + size] for i in range(0, len(payload), size)]


@dataclass(frozen=True, slots=True)
class Frame:
    """20 ms of speech."""

    turn: int
    payload: bytes


@dataclass(slots=True)
class PlayoutCounters:
    """What happened on a call so far."""

    speech_frames: int = 0
    silence_frames: int = 0
    underruns: int = 0
    """Times at which a turn went on and its next frame was not there."""
    dropped_frames: int = 0
    """Frames thrown away by barge-in."""
    clock_jumps: int = 0
    """Times at which this process itself was late by more than a listener can bear."""
    most_late_s: float = 0.0
    """How late the latest frame was."""
    late_frames: int = 0
    """Frames that left later than `LATE_S`."""


@dataclass(slots=True)
class Step:
    """What is due now: effects to report, then a frame (None: there is no speech)."""

    reports: list[Effect] = field(default_factory=list)
    frame: Frame | None = None


class Playout:
    """The queue of one call."""

    def __init__(self, form: FrameFormat, capacity_s: float) -> None:
        self.form = form
        self.counters = PlayoutCounters()
        self._capacity = max(1, round(capacity_s / FRAME_S))
        self._items: deque[Frame | Effect] = deque()
        self._frames = 0
        self._room = asyncio.Event()
        self._room.set()
        self._filled = asyncio.Event()
        self._speaking: int | None = None
        self._starved = False
        self._held = 0
        self._played: dict[int, int] = {}
        self._in_flight: deque[tuple[str, list[Effect]]] = deque()

    @property
    def buffered_s(self) -> float:
        """Speech that waits."""
        return self._frames * FRAME_S

    @property
    def is_empty(self) -> bool:
        """Whether there is neither speech nor anything to report."""
        return not self._items

    def played_s(self, turn: int) -> float:
        """Speech of a turn that was handed over, until its `Done` was reported."""
        return self._played.get(turn, 0) * FRAME_S

    async def room(self) -> None:
        """Wait until less than the capacity waits."""
        await self._room.wait()

    async def filled(self) -> None:
        """Wait until there is something to do."""
        await self._filled.wait()

    def put(self, effect: Effect) -> None:
        """Add an effect behind everything that waits."""
        if isinstance(effect, Audio):
            # The effect itself is reported with its first frame, for whoever counts bytes.
            self._items.append(effect)
            for payload in self.form.cut(effect.payload):
                self._items.append(Frame(effect.turn, payload))
                self._frames += 1
        else:
            self._items.append(effect)
        if self._frames >= self._capacity:
            self._room.clear()
        self._filled.set()

    def next(self) -> Step:
        """Take what is due now: the effects before the next frame, and the frame."""
        step = Step()
        while self._items and not self._prerolling():
            item = self._items.popleft()
            if isinstance(item, Frame):
                step.frame = item
                break
            self._note(item)
            step.reports.append(item)
        self._count(step.frame)
        self._wake()
        return step

    def defer(self, mark: str, reports: list[Effect]) -> None:
        """Keep reports of a peer that buffers by itself until it says that `mark` was heard."""
        self._in_flight.append((mark, reports))

    def heard(self, mark: str) -> list[Effect]:
        """What is due for report now that the peer has played up to `mark`."""
        if all(name != mark for name, _ in self._in_flight):
            return []  # one from before a barge-in
        due: list[Effect] = []
        while True:
            name, reports = self._in_flight.popleft()
            due += reports
            if name == mark:
                return due

    def clear(self) -> list[Effect]:
        """Barge-in: drop all speech. What turns still had to say about their end is returned,
        changed to say that they were cancelled."""
        ended: list[Effect] = []
        unheard = [effect for _, reports in self._in_flight for effect in reports]
        self._in_flight.clear()
        for item in [*unheard, *self._items]:
            if isinstance(item, Frame):
                self.counters.dropped_frames += 1
            elif isinstance(item, Done):
                report = replace(item.report, finish_reason=FinishReason.CANCELLED.value)
                ended.append(Done(report))
                self._note(item)
            elif not isinstance(item, Audio | Progress):
                ended.append(item)
        self._items.clear()
        self._frames = 0
        self._speaking = None
        self._wake()
        return ended

    def _prerolling(self) -> bool:
        """Whether a turn is about to begin and should gather a few frames first."""
        first = self._items[0]
        if not isinstance(first, Audio) or first.turn == self._speaking:
            return False
        ends = any(isinstance(item, Done) for item in self._items)
        if self._frames >= self.form.preroll or self._held >= self.form.preroll or ends:
            self._held = 0
            return False
        self._held += 1
        return True

    def _note(self, effect: Effect) -> None:
        if isinstance(effect, Audio):
            self._speaking = effect.turn
        elif isinstance(effect, Done):
            self._played.pop(effect.report.turn, None)
            if self._speaking == effect.report.turn:
                self._speaking = None

    def _count(self, frame: Frame | None) -> None:
        if frame is not None:
            self._frames -= 1
            self._starved = False
            self.counters.speech_frames += 1
            self._played[frame.turn] = self._played.get(frame.turn, 0) + 1
            return
        self.counters.silence_frames += 1
        if self._speaking is not None and not self._starved:
            self._starved = True
            self.counters.underruns += 1

    def _wake(self) -> None:
        if self._frames < self._capacity:
            self._room.set()
        if not self._items:
            self._filled.clear()


class MediaClock:
    """20 ms ticks from the start of a call to its end. Free of I/O; times are `time.monotonic()`.

    A tick that comes late is made up for at once, so that its frame's media time still agrees
    with the wall clock. After a stall the media time jumps with the wall clock: time stamps that
    ran on contiguously would leave the listener's jitter buffer late for the rest of the call.
    """

    MOST_BEHIND_S = 0.1

    def __init__(self, now: float) -> None:
        self._start = now
        self._tick = -1
        self.jumps = 0

    def next(self, now: float) -> tuple[int, float]:
        """Number of the next tick, and the seconds to wait for it (0: it is due)."""
        self._tick += 1
        wait = self._start + self._tick * FRAME_S - now
        if wait < -self.MOST_BEHIND_S:
            self._tick = int((now - self._start) / FRAME_S) + 1
            self.jumps += 1
            wait = self._start + self._tick * FRAME_S - now
        return self._tick, max(0.0, wait)

    def late_s(self, now: float) -> float:
        """How long ago the present tick was due."""
        return max(0.0, now - self._start - self._tick * FRAME_S)
