"""The turn machine: what may be said in which order, and what follows from it. Free of I/O.

One machine serves one connection. Commands of the client and reports of the turns that speak go
into `handle`; effects come out, to be carried out in order. Time is a number that the caller
passes in. Every protocol maps its own messages to these commands and effects.

A context is a name for one turn at a time:

    unknown ── Configure ──► ready ── PushText ──► open ── EndText ──► ending ── Finished ──► ready
                               ▲                     └────── Cancel, Failed ─────┘              │
                               └────────────────────────────────────────────────────────────────┘

A turn that failed before its text ended leaves the rest of that text to be discarded: the context
swallows it until the client's own `EndText`, `Cancel` or `Configure`.
"""

from __future__ import annotations

from antiphon.engine.errors import AntiphonError, InvalidRequest
from antiphon.engine.interface import FinishReason
from antiphon.engine.text.validate import validate_text
from antiphon.server.config import Limits
from antiphon.server.errors import (
    DeadlineExceeded,
    NotReady,
    TextTooLong,
    UnspeakableCharacter,
    WrongOrder,
    outcome,
)
from antiphon.server.playback import Playback
from antiphon.server.settings import TurnSettings
from antiphon.server.turn_events import (
    Audio,
    Cancel,
    Close,
    CloseConnection,
    Configure,
    CutOff,
    Done,
    Drain,
    Dropped,
    Effect,
    EndText,
    Failed,
    Feed,
    FeedEnd,
    FeedFlush,
    Finished,
    Flush,
    Input,
    Opened,
    OpenTurn,
    Progress,
    Progressed,
    PushText,
    Ready,
    Refused,
    Spoke,
    StopTurn,
    Tick,
)
from antiphon.server.turn_state import Context, Deadline, Turn

ERROR_FINISH = "error"


class TurnMachine:
    """State of one connection."""

    def __init__(self, limits: Limits, now: float) -> None:
        self._limits = limits
        self._contexts: dict[str, Context] = {}
        self._turns: dict[int, Turn] = {}
        self._next_turn = 0
        self._connected_at = self._active_at = now
        self._spoken_to = False
        self._closing: CloseConnection | None = None
        self._draining = False
        self.closed = False

    def handle(self, event: Input, now: float) -> list[Effect]:
        """Take one event at time `now` and say what follows, in order."""
        if self.closed:
            return []
        match event:
            case Spoke():
                effects = self._spoke(event, now)
            case Progressed():
                effects = self._progressed(event, now)
            case Finished():
                effects = self._finished(event, now)
            case Failed():
                effects = self._failed(event, now)
            case Tick():
                effects = self._tick(now)
            case Drain():
                effects = self._drain()
            case CutOff():
                effects = self._cut_off()
            case Dropped():
                effects = self._dropped()
            case _:
                effects = self._command(event, now)
        return effects + self._close_when_idle()

    def deadline(self) -> float | None:
        """When `Tick` is due if nothing else happens before; None once closed."""
        if self.closed:
            return None
        return min(due.at for due in self._deadlines())

    def is_open(self, turn: int) -> bool:
        """Whether audio of this turn may still be handed over."""
        return turn in self._turns

    def playback(self, turn: int) -> Playback | None:
        """The listener of an open turn."""
        found = self._turns.get(turn)
        return found.playback if found else None

    @property
    def contexts(self) -> int:
        """Contexts that are configured."""
        return len(self._contexts)

    @property
    def unspoken_characters(self) -> int:
        """Text received and not yet spoken, over all turns."""
        return sum(turn.unspoken for turn in self._turns.values())

    # Commands of the client

    def _command(self, event: Input, now: float) -> list[Effect]:
        self._spoken_to = True
        self._active_at = now
        if self._closing is not None:
            return []
        try:
            match event:
                case Configure(context, settings):
                    return self._configure(context, settings)
                case PushText(context, text):
                    return self._push_text(self._known(context), text, now)
                case EndText(context):
                    return self._end_text(self._known(context), now)
                case Flush(context):
                    return self._flush(self._known(context))
                case Cancel(context):
                    return self._cancel(self._known(context))
                case Close(context):
                    return self._close(context)
                case Refused(error, context):
                    return self._refuse(error, context)
        except AntiphonError as error:
            return self._refuse(error, getattr(event, "context", None))
        raise AssertionError(f"unhandled event {type(event).__name__}")

    def _refuse(self, error: AntiphonError, context: str | None) -> list[Effect]:
        """Say what was wrong. The state stays as it was, unless the error ends connections."""
        if outcome(error).ends_connection:
            stops = self._stop_all()
            self.closed = True
            return [
                *stops,
                Refused(error, context),
                CloseConnection(outcome(error).close_code, error.code),
            ]
        return [Refused(error, context)]

    def _known(self, context: str) -> Context:
        found = self._contexts.get(context)
        if found is None:
            raise WrongOrder("This context was not configured yet.", field="context_id")
        return found

    def _configure(self, name: str, settings: TurnSettings) -> list[Effect]:
        context = self._contexts.get(name)
        if context is not None and context.turn is not None:
            raise WrongOrder(
                "A context cannot be configured while it speaks; wait for the end of the turn or "
                "cancel it.",
                field="type",
            )
        if context is None and len(self._contexts) >= self._limits.max_contexts:
            raise InvalidRequest(
                f"One connection has at most {self._limits.max_contexts} contexts; close one.",
                field="context_id",
                limit=self._limits.max_contexts,
            )
        self._contexts[name] = Context(name, settings)
        return [Ready(name, settings)]

    def _push_text(self, context: Context, text: str, now: float) -> list[Effect]:
        _check_characters(text)
        if context.discarding:
            return []
        turn = context.turn
        if turn is not None and turn.ended:
            raise WrongOrder(
                "The text of this turn has ended and is still being spoken; wait for the end of "
                "the turn, cancel it, or use another context.",
                field="type",
            )
        waiting = turn.unspoken if turn else len(context.blank)
        if waiting + len(text) > self._limits.text_queue_chars:
            raise _too_long(context, len(text), self._limits.text_queue_chars)
        if turn is None and not text.strip():
            context.blank += text
            return []
        if turn is None:
            return self._open(context, text, now)
        turn.characters += len(text)
        turn.last_input_at = now
        return [Feed(turn.id, text)]

    def _open(self, context: Context, text: str, now: float) -> list[Effect]:
        whole, context.blank = context.blank + text, ""
        turn = self._new_turn(context, now)
        turn.characters = len(whole)
        opened = Opened(turn.id, context.name, context.settings)
        if self._draining:
            error = NotReady(
                "The server is about to stop and starts no new turns.",
                retry_after_s=self._limits.drain_s,
            )
            return [opened, *self._end(turn, ERROR_FINISH, error)]
        return [
            opened,
            OpenTurn(turn.id, context.name, context.settings),
            *([Feed(turn.id, whole)] if whole else []),
        ]

    def _new_turn(self, context: Context, now: float) -> Turn:
        turn = Turn(self._next_turn, context.name, context.settings, now, now)
        self._next_turn += 1
        self._turns[turn.id] = turn
        context.turn = turn
        return turn

    def _end_text(self, context: Context, now: float) -> list[Effect]:
        context.blank = ""
        if context.discarding:
            context.discarding = False
            return []
        if context.turn is None and context.settings.request.source is not None:
            effects = self._open(context, "", now)
            if context.turn is not None:
                return effects + self._end_text(context, now)
            context.discarding = False
            return effects
        if context.turn is None:
            turn = self._new_turn(context, now)
            turn.ended = True
            opened = Opened(turn.id, context.name, context.settings)
            return [opened, *self._end(turn, FinishReason.EMPTY)]
        if context.turn.ended:
            raise WrongOrder("The text of this turn has ended already.", field="type")
        context.turn.ended = True
        context.turn.last_input_at = now
        return [FeedEnd(context.turn.id)]

    def _flush(self, context: Context) -> list[Effect]:
        if context.turn is None or context.turn.ended:
            return []
        return [FeedFlush(context.turn.id)]

    def _cancel(self, context: Context) -> list[Effect]:
        context.blank = ""
        context.discarding = False
        if context.turn is None:
            return []
        turn = context.turn
        return [StopTurn(turn.id), *self._end(turn, FinishReason.CANCELLED)]

    def _close(self, name: str | None) -> list[Effect]:
        """Let turns whose text has ended speak on, stop the others, then close."""
        names = list(self._contexts) if name is None else [self._known(name).name]
        effects: list[Effect] = []
        for context in [self._contexts[each] for each in names]:
            context.closing = True
            if context.turn is None or not context.turn.ended:
                effects += self._cancel(context)
            if context.turn is None:
                self._contexts.pop(context.name, None)
        if name is None:
            self._closing = CloseConnection(1000, "closed by the client")
        return effects

    # Reports of the turns that speak

    def _spoke(self, event: Spoke, now: float) -> list[Effect]:
        turn = self._turns.get(event.turn)
        if turn is None:
            return []
        turn.samples += event.samples
        turn.seconds += event.seconds
        turn.work_s += event.work_s
        turn.stages = turn.stages or event.stages
        if event.seconds > 0:
            turn.playback.heard(event.seconds, now)
        turn.last_input_at = now
        return [Audio(turn.id, turn.context, event.payload, event.samples, event.seconds)]

    def _progressed(self, event: Progressed, now: float) -> list[Effect]:
        turn = self._turns.get(event.turn)
        if turn is None:
            return []
        turn.spoken_characters = max(turn.spoken_characters, event.characters)
        turn.last_input_at = now
        return [
            Progress(
                turn.id,
                turn.context,
                event.text,
                turn.spoken_characters,
                turn.samples,
                event.start_s,
                event.end_s,
            )
        ]

    def _finished(self, event: Finished, now: float) -> list[Effect]:
        turn = self._turns.get(event.turn)
        if turn is None:
            return []
        self._active_at = now
        return self._end(turn, event.reason)

    def _failed(self, event: Failed, now: float) -> list[Effect]:
        turn = self._turns.get(event.turn)
        if turn is None:
            return []
        self._active_at = now
        return self._end(turn, ERROR_FINISH, event.error)

    def _end(self, turn: Turn, reason: str, error: AntiphonError | None = None) -> list[Effect]:
        del self._turns[turn.id]
        context = self._contexts[turn.context]
        context.turn = None
        context.discarding = not turn.ended and reason != FinishReason.CANCELLED
        if context.closing:
            del self._contexts[turn.context]
        effects: list[Effect] = []
        if error is not None:
            effects = [StopTurn(turn.id), Refused(error, turn.context, turn.id)]
        return [*effects, Done(turn.report(reason))]

    # Time and the end of the connection

    def _deadlines(self) -> list[Deadline]:
        # Only the turns that are still open have deadlines on a connection that closes.
        due = [] if self._closing is not None else self._connection_deadlines()
        for turn in self._turns.values():
            due += turn.deadlines(self._limits)
        return due

    def _connection_deadlines(self) -> list[Deadline]:
        limits = self._limits
        due = [Deadline(self._connected_at + limits.connection_s, "connection_s")]
        if not self._spoken_to:
            due.append(Deadline(self._connected_at + limits.first_message_s, "first_message_s"))
        if not self._turns:
            due.append(Deadline(self._active_at + limits.idle_s, "idle_s"))
        return due

    def _tick(self, now: float) -> list[Effect]:
        effects: list[Effect] = []
        for due in self._deadlines():
            if due.at > now:
                continue
            limit = float(getattr(self._limits, due.limit))
            error = DeadlineExceeded(
                f"The limit {due.limit} of {limit:g} seconds was reached.",
                field=due.limit,
                limit=limit,
            )
            if due.turn is not None:
                if due.turn.id in self._turns:
                    effects += self._end(due.turn, ERROR_FINISH, error)
            elif self._closing is None:
                effects.append(Refused(error, None))
                self._closing = CloseConnection(outcome(error).close_code, error.code)
        return effects

    def _drain(self) -> list[Effect]:
        self._draining = True
        return []

    def _cut_off(self) -> list[Effect]:
        self._draining = True
        error = NotReady(
            "The server stopped before this turn came to its end.",
            retry_after_s=self._limits.drain_s,
        )
        open_turns = list(self._turns.values())
        return [each for turn in open_turns for each in self._end(turn, ERROR_FINISH, error)]

    def _dropped(self) -> list[Effect]:
        effects = self._stop_all()
        self.closed = True
        return effects

    def _stop_all(self) -> list[Effect]:
        stops: list[Effect] = [StopTurn(turn) for turn in self._turns]
        self._turns.clear()
        self._contexts.clear()
        return stops

    def _close_when_idle(self) -> list[Effect]:
        if self._turns or self.closed:
            return []
        closing = self._closing
        if closing is None and self._draining:
            closing = CloseConnection(1012, "the server is about to stop")
        if closing is None:
            return []
        self.closed = True
        return [closing]


def _too_long(context: Context, characters: int, limit: int) -> TextTooLong:
    if context.settings.request.whole_text:
        message = f"The text has {characters} characters; at most {limit} are taken."
    else:
        message = (
            f"More than {limit} characters of this turn wait to be spoken; "
            "this piece was not taken."
        )
    return TextTooLong(message, field="text", limit=limit)


def _check_characters(text: str) -> None:
    try:
        validate_text(text)
    except InvalidRequest as error:
        raise UnspeakableCharacter(error.message, field=error.field) from None
