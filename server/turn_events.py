"""What goes into the turn machine and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from antiphon.engine.errors import AntiphonError
from antiphon.server.settings import TurnSettings

# Commands of the client. `context` is "" for the default one.


@dataclass(frozen=True, slots=True)
class Configure:
    """Make a context known, or change how its next turn is spoken."""

    context: str
    settings: TurnSettings


@dataclass(frozen=True, slots=True)
class PushText:
    """Text to be spoken; opens a turn if none is open."""

    context: str
    text: str


@dataclass(frozen=True, slots=True)
class Flush:
    """Speak what is buffered, keep the turn open."""

    context: str


@dataclass(frozen=True, slots=True)
class EndText:
    """The turn's text is complete."""

    context: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Barge-in: stop the turn now."""

    context: str


@dataclass(frozen=True, slots=True)
class Close:
    """End a context, or (None) the connection."""

    context: str | None


@dataclass(frozen=True, slots=True)
class Refused:
    """An error to report. Also a command: a message that could not be decoded."""

    error: AntiphonError
    context: str | None
    turn: int | None = None
    """The turn that the error ended, if any; its `Done` follows."""


# Reports of the turns that speak, and of the connection


@dataclass(frozen=True, slots=True)
class Spoke:
    """One encoded message is ready and may be handed over now."""

    turn: int
    payload: bytes
    samples: int
    """At the output rate, without padding."""
    seconds: float
    work_s: float = 0.0
    """Seconds of synthesis since the previous report."""
    stages: Mapping[str, float] = field(default_factory=dict)
    """With the first message of a turn: seconds in each stage on the way to it."""


@dataclass(frozen=True, slots=True)
class Progressed:
    """`SpeechProgress` of a turn."""

    turn: int
    text: str
    characters: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Finished:
    """A turn ended by itself and holds nothing any more."""

    turn: int
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A turn cannot go on."""

    turn: int
    error: AntiphonError


@dataclass(frozen=True, slots=True)
class Tick:
    """Time passed."""


@dataclass(frozen=True, slots=True)
class Drain:
    """The server is about to stop: finish what is open, start nothing."""


@dataclass(frozen=True, slots=True)
class CutOff:
    """The server stops now: end what is still open with an error."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """The connection is gone. A closed socket is a cancel."""


Input = (
    Configure
    | PushText
    | Flush
    | EndText
    | Cancel
    | Close
    | Refused
    | Spoke
    | Progressed
    | Finished
    | Failed
    | Tick
    | Drain
    | CutOff
    | Dropped
)

# Effects on the turns that speak


@dataclass(frozen=True, slots=True)
class OpenTurn:
    """Open a session of the engine."""

    turn: int
    context: str
    settings: TurnSettings


@dataclass(frozen=True, slots=True)
class Feed:
    """Give text to a turn's session."""

    turn: int
    text: str


@dataclass(frozen=True, slots=True)
class FeedFlush:
    """Flush a turn's session."""

    turn: int


@dataclass(frozen=True, slots=True)
class FeedEnd:
    """End the text of a turn's session."""

    turn: int


@dataclass(frozen=True, slots=True)
class StopTurn:
    """Cancel a turn's session and drop what was made for it."""

    turn: int


# Effects on the client


@dataclass(frozen=True, slots=True)
class Ready:
    """A context is configured."""

    context: str
    settings: TurnSettings


@dataclass(frozen=True, slots=True)
class Opened:
    """A turn began. Nothing is sent for it by itself."""

    turn: int
    context: str
    settings: TurnSettings


@dataclass(frozen=True, slots=True)
class Audio:
    """One message of encoded audio."""

    turn: int
    context: str
    payload: bytes
    samples: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Progress:
    """The audio sent so far covers the first `characters` of the turn's text."""

    turn: int
    context: str
    text: str
    """What was added since the last progress."""
    characters: int
    samples: int
    """Sent so far, at the output rate."""
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class TurnReport:
    """How a turn went."""

    turn: int
    context: str
    settings: TurnSettings
    finish_reason: str
    """A `FinishReason`, or `error`."""
    samples: int
    characters: int
    first_packet_s: float | None
    """From the turn's first text reaching the server to its first audio leaving; None: no audio."""
    rtf: float | None
    """Seconds of synthesis for one second of audio."""
    gaps: int
    gap_s: float
    stages: Mapping[str, float] = field(default_factory=dict)
    """Seconds in each stage on the way to the first audio."""


@dataclass(frozen=True, slots=True)
class Done:
    """Last word about a turn; sent once for every turn."""

    report: TurnReport


@dataclass(frozen=True, slots=True)
class CloseConnection:
    """Close the WebSocket. Nothing follows."""

    code: int
    reason: str


TurnEffect = OpenTurn | Feed | FeedFlush | FeedEnd | StopTurn
ClientEffect = Ready | Opened | Audio | Progress | Refused | Done | CloseConnection
Effect = TurnEffect | ClientEffect
