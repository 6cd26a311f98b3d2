"""All that the server sees of an engine.

An `Engine` opens a `SpeechSession` for each turn of speech. Text goes in by `push_text`, in pieces
of any size; audio and events come out of `events()`. Both engines (CosyVoice checkpoints, preset
voices) stand behind it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from antiphon.engine.watermark.marked import MarkedAudio

if TYPE_CHECKING:
    from antiphon.engine.audio_file import DecodedAudio

MAX_INSTRUCTION = 500
"""Characters. Instructions are read at every turn before any text is."""
MAX_SOURCE_S = 300.0
"""Longest recording that is converted in one request."""


class Mode(StrEnum):
    """How a voice is given to the model."""

    PRESET = "preset"
    ZERO_SHOT = "zero_shot"
    CROSS_LINGUAL = "cross_lingual"
    INSTRUCT = "instruct"
    VOICE_CONVERSION = "voice_conversion"


class FinishReason(StrEnum):
    """Why a turn ended."""

    STOP = "stop"
    """The model said that the text is spoken."""
    LENGTH = "length"
    """The longest speech allowed for this text was reached: the end may be missing."""
    TOKEN_LOOP = "token_loop"
    """The model repeated itself without end and was stopped."""
    EMPTY = "empty"
    """The text had nothing to speak; no model work was done."""
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class VoiceInfo:
    """One voice as listed by `GET /v1/voices`."""

    name: str
    language: str
    description: str
    mode: Mode
    first_token_text_tokens: int = 0
    """Text tokens that the caller must have sent before the first speech token can be made."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What an engine can do. A request outside of it is refused by name."""

    model: str
    """Name by which requests choose this engine."""
    sample_rate: int
    modes: frozenset[Mode]
    languages: frozenset[str]
    """BCP 47 primary tags."""
    speaks_before_clause_end: bool
    """True where speech starts after some tokens of text; false where a whole clause is needed."""
    speed: tuple[float, float] = (1.0, 1.0)
    """Slowest and fastest allowed `SpeechRequest.speed`."""
    pronunciation: bool = False
    """Whether `[T][AH0][M][AA1][T][OW2]` overrides in the text are spoken as written."""
    hop_tokens: tuple[int, int] | None = None
    """Bounds of `SpeechRequest.first_hop`; None where the engine has no hops."""


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """One turn of speech: of text, or of a recording that is said again in the voice."""

    voice: str
    language: str | None = None
    speed: float = 1.0
    seed: int | None = None
    instruct: str | None = None
    first_hop: int | None = None
    """Speech tokens in the first hop; None for the deployment's default."""
    max_hop: int | None = None
    hop_growth: float | None = None
    """Factor from one hop to the next."""
    lead_s: float | None = None
    """Compute at most this far ahead of a listener who plays at once; None: as capacity allows."""
    whole_text: bool = False
    """All text is there before any is spoken: checkpoints that were tuned on whole texts then read
    and cut it as a whole."""
    source: DecodedAudio | None = field(default=None, compare=False, repr=False)
    """A recording to be converted (`Mode.VOICE_CONVERSION`); its session takes no text."""
    tenant: str | None = None
    """Who asks, where a deployment keeps what is cached of different callers apart."""


@dataclass(frozen=True, slots=True)
class SpeechAudio:
    """Samples in playing order, gapless from one to the next."""

    audio: MarkedAudio
    timings: dict[str, float] = field(default_factory=dict)
    """Seconds spent in each stage since the previous audio event (`text`, `lm`, `flow`, …)."""
    cached_ids: tuple[int, ...] = ()
    """For each request to the speech LM that began to speak since then: how many ids of its prompt
    were in the prefix cache. Empty where the backend has none."""


@dataclass(frozen=True, slots=True)
class SpeechProgress:
    """The audio handed out so far covers the first `characters` of the pushed text.

    `text` is what was added to it since the last progress; `start_s`/`end_s` place it in the turn.
    """

    text: str
    characters: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class SpeechFinished:
    """Last event of a turn."""

    reason: FinishReason
    samples: int
    """Samples handed out in all, at the engine's rate."""
    speech_tokens: int = 0


SpeechEvent = SpeechAudio | SpeechProgress | SpeechFinished


class SpeechSession(Protocol):
    """One turn. Used by one task for text and one for events."""

    async def push_text(self, text: str) -> None:
        """Add text. Waits while the session's text queue is full.

        Raises:
            InvalidRequest: control characters or lone surrogates in the text.
        """

    async def flush(self) -> None:
        """Speak what is buffered without waiting for the text that could change it."""

    async def end_text(self) -> None:
        """No more text will come; `push_text` afterwards is an error of ours."""

    def events(self) -> AsyncIterator[SpeechEvent]:
        """Audio and progress, ending with `SpeechFinished`. Pulling it is the back-pressure.

        Raises:
            SynthesisFailed: while speaking.
            ConsentRequired: the voice was withdrawn, or its consent ended, while it spoke.
        """

    async def cancel(self) -> None:
        """Stop all work of this turn within one model step and free what it holds. Idempotent.

        `events()` then ends with `SpeechFinished(CANCELLED)`; no audio follows.
        """


class Engine(Protocol):
    """A loaded model with its voices."""

    @property
    def capabilities(self) -> Capabilities:
        """What this engine can do."""

    @property
    def ready(self) -> bool:
        """Whether turns can be spoken now; false while a part that died is being restarted."""

    def voices(self) -> Sequence[VoiceInfo]:
        """The voices it has, of which some may be refused at the moment."""

    def check_voice(self, name: str) -> None:
        """Return if a voice may be spoken with now.

        Raises:
            UnknownVoice, UnsupportedFeature (made for another model), ConsentRequired.
        """

    async def warm_up(self) -> None:
        """Speak a short text once, so that the first caller does not pay for first-use costs."""

    async def open_session(self, request: SpeechRequest) -> SpeechSession:
        """Start a turn.

        Raises:
            UnknownVoice, UnsupportedFeature, ConsentRequired, Overloaded.
        """

    async def close(self) -> None:
        """Cancel what runs and free the model."""
