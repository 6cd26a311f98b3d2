"""One call: a conversation of its own, what waits to be heard, and who follows it.

text (data channel, control leg, greeting) ─► Conversation ─► Playout ─► next_frame() ─► peer
peer's voice ─► CallerAudio ─► voice events, 16 kHz PCM for agents
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import structlog

from antiphon.engine.errors import AntiphonError
from antiphon.server.audio import AudioFormat, OpusTuning
from antiphon.server.calls.caller import CallerAudio
from antiphon.server.calls.outlet import CallOutlet
from antiphon.server.calls.playout import FRAME_S, LATE_S, MediaClock, Playout
from antiphon.server.calls.spec import CallKind, CallSpec, Listener
from antiphon.server.calls.vad import VoiceEvent, VoiceLevel, VoiceStarted, VoiceStopped
from antiphon.server.config import Limits
from antiphon.server.conversation import Conversation
from antiphon.server.engines import Wanted
from antiphon.server.house import House
from antiphon.server.protocols.native import command, wanted
from antiphon.server.protocols.native_frames import NativeFrames
from antiphon.server.protocols.native_messages import SessionConfig
from antiphon.server.settings import Split, TurnSettings
from antiphon.server.turn_events import (
    Cancel,
    Close,
    CloseConnection,
    Configure,
    Effect,
    EndText,
    Input,
    Progress,
    PushText,
    Ready,
    Refused,
)

_POSITION_EVERY_S = 0.2
"""Between two reports of the play position."""

_log = structlog.get_logger("antiphon.call")


class Call:
    """See the module. Made and closed by `Calls.open`."""

    def __init__(self, house: House, spec: CallSpec, limits: Limits) -> None:
        self.id = uuid.uuid4().hex
        self.spec = spec
        self.started_at = time.time()
        self.ended = asyncio.Event()
        self.on_drop: Callable[[], None] | None = None
        """Set by transports whose peer holds speech of its own."""
        self.end_reason = ""
        self.barge_in = house.config.calls.barge_in
        self.opus_tuning = OpusTuning(bitrate=house.config.calls.opus_bitrate)
        self.playout = Playout(spec.frames, house.config.calls.playout_s)
        self.caller = CallerAudio(self._on_voice)
        self._house = house
        self._frames = NativeFrames(self.id)
        self._listeners: list[Listener] = []
        self._ready: tuple[Effect, list[str]] | None = None
        self._turn: int | None = None
        self._reported_s = 0.0
        self._texts: set[asyncio.Task[None]] = set()
        self.conversation = Conversation(
            engines=house.engines,
            resources=house.resources,
            limits=limits,
            outlet=CallOutlet(self),
        )

    # From agents, data channels and greetings

    async def submit(self, event: Input) -> None:
        """Carry out a command."""
        if isinstance(event, Close) and event.context is None:
            self.hang_up("closed")
            return
        await self.conversation.submit(event)
        if isinstance(event, Cancel):
            # The machine may be through with a turn that still waits to be heard.
            self.drop_speech()

    async def submit_native(self, text: str) -> None:
        """Carry out a message of the native protocol."""
        await self.submit(command(text, self._settings))

    async def configure(self, change: Wanted | None = None) -> None:
        """Say how the next turns are spoken; an error is reported to the listeners."""
        try:
            settings = self.settings(change or self.spec.wanted)
        except AntiphonError as error:
            await self.submit(Refused(error, ""))
        else:
            await self.submit(Configure("", settings))

    async def say(self, text: str) -> None:
        """Speak a whole text as one turn."""
        await self.submit(PushText("", text))
        await self.submit(EndText(""))

    def settings(self, change: Wanted) -> TurnSettings:
        """Resolve a wish; format, rate and loudness are the call's own.

        Raises:
            UnknownVoice, UnsupportedFeature, InvalidRequest.
        """
        spec = self.spec
        fixed = replace(
            change,
            response_format=spec.audio.value,
            sample_rate=spec.sample_rate,
            word_timestamps=False,
            split=Split.NONE.value,
            tenant=spec.owner or None,
            lead_s=self._house.config.calls.lead_s if change.lead_s is None else change.lead_s,
        )
        phone = spec.kind is CallKind.PHONE
        return replace(
            self._house.engines.resolve(fixed),
            opus_tuning=self.opus_tuning if spec.audio is AudioFormat.OPUS_RAW else None,
            gain_db=self._house.config.calls.phone_gain_db if phone else 0.0,
        )

    def _settings(self, config: SessionConfig) -> TurnSettings:
        asked = wanted(config)
        if asked.voice is None and asked.model is None:
            asked = replace(asked, voice=self.spec.wanted.voice, model=self.spec.wanted.model)
        return self.settings(asked)

    # From the transport

    def frame_or_silence(self) -> bytes:
        """The next 20 ms for a peer that plays them at once. Never waits."""
        step = self.playout.next()
        self.report(step.reports)
        if step.frame is None:
            return self.spec.frames.silence
        self.played(step.frame.turn, self.playout.played_s(step.frame.turn))
        return step.frame.payload

    def ticked(self, clock: MediaClock) -> None:
        """Note how well the call's clock keeps time."""
        counters = self.playout.counters
        counters.clock_jumps = clock.jumps
        late_s = clock.late_s(time.monotonic())
        counters.most_late_s = max(counters.most_late_s, late_s)
        counters.late_frames += late_s > LATE_S

    def report(self, effects: Sequence[Effect]) -> None:
        """Tell the listeners what has reached the ear."""
        for effect in effects:
            self.tell(effect)

    def played(self, turn: int, seconds: float) -> None:
        """Tell the listeners now and then how far a turn was heard."""
        if turn != self._turn:
            self._turn, self._reported_s = turn, 0.0
        if seconds - self._reported_s >= _POSITION_EVERY_S - FRAME_S / 2:
            self._reported_s = seconds
            self.emit("audio.played", utterance_index=turn, ms=round(1000 * seconds))

    def foretell(self, effect: Progress) -> None:
        """Tell the listeners when words will be heard, for whoever shows them as they are."""
        self.emit(
            "progress.ahead",
            utterance_index=effect.turn,
            text=effect.text,
            characters=effect.characters,
            start_ms=round(1000 * effect.start_s, 1),
            end_ms=round(1000 * effect.end_s, 1),
        )

    def drop_speech(self) -> None:
        """Throw away what waits to be heard, here and at a peer that buffers."""
        ended = self.playout.clear()
        if self.on_drop is not None:
            self.on_drop()
        self.report(ended)

    def press(self, digit: str) -> None:
        """The caller pressed a key."""
        self.emit("call.dtmf", digit=digit)

    def hang_up(self, reason: str) -> None:
        """End the call; its transport closes. Idempotent."""
        if not self.ended.is_set():
            self.end_reason = reason
            self.ended.set()
            self.emit("call.ended", reason=reason)

    # Listeners

    def add(self, listener: Listener) -> Callable[[], None]:
        """Let someone follow the call, until the returned function is called."""
        self._listeners.append(listener)
        if self._ready is not None:
            listener.on_effect(*self._ready)

        def remove() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return remove

    def emit(self, kind: str, **fields: Any) -> None:
        """Tell the listeners of something that is not the turn machine's."""
        event = {"type": kind, **fields}
        for listener in list(self._listeners):
            listener.on_event(event)

    def describe(self) -> dict[str, Any]:
        """What `GET /v1/calls` says of it."""
        counters = self.playout.counters
        return {
            "id": self.id,
            "kind": self.spec.kind.value,
            "peer": self.spec.peer,
            "started_at": round(self.started_at, 3),
            "seconds": round(time.time() - self.started_at, 1),
            "format": self.spec.audio.value,
            "sample_rate": self.spec.sample_rate,
            "speech_s": round(counters.speech_frames * FRAME_S, 2),
            "buffered_s": round(self.playout.buffered_s, 2),
            "underruns": counters.underruns,
            "clock_jumps": counters.clock_jumps,
            "late_frames": counters.late_frames,
            "most_late_ms": round(1000 * counters.most_late_s, 1),
            "caller_s": round(self.caller.seconds, 2),
            "loss_percent": self.opus_tuning.loss_percent,
            "details": self.spec.details or {},
        }

    async def close(self) -> None:
        """Free everything. `Calls.open` calls it."""
        self.hang_up("hung up")
        self._listeners.clear()
        self.caller.close()
        for task in self._texts:
            task.cancel()
        await self.conversation.close()

    def tell(self, effect: Effect) -> None:
        """Tell the listeners of an effect that has reached the ear."""
        if isinstance(effect, CloseConnection):
            self.hang_up(effect.reason)
            return
        messages = [
            message
            for message in self._frames.write(effect, contexts=1)
            if isinstance(message, str)
        ]
        if isinstance(effect, Ready):
            self._ready = (effect, messages)
        for listener in list(self._listeners):
            listener.on_effect(effect, messages)

    def _on_voice(self, event: VoiceEvent) -> None:
        match event:
            case VoiceLevel(dbfs, speech):
                self.emit("caller.level", dbfs=dbfs, speech=speech)
            case VoiceStarted():
                self.emit("caller.speech_started")
                if self.barge_in and not self.playout.is_empty:
                    self._later(Cancel(""))
            case VoiceStopped():
                self.emit("caller.speech_stopped")

    def _later(self, event: Input) -> None:
        task = asyncio.get_running_loop().create_task(self.submit(event))
        self._texts.add(task)
        task.add_done_callback(self._texts.discard)
