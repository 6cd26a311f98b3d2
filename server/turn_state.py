"""What the turn machine remembers of its contexts and turns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from antiphon.server.config import Limits
from antiphon.server.playback import Playback
from antiphon.server.settings import TurnSettings
from antiphon.server.turn_events import TurnReport


@dataclass(frozen=True, slots=True)
class Deadline:
    """When something is over."""

    at: float
    limit: str
    """Name of the value in `Limits`."""
    turn: Turn | None = None
    """The turn that it ends; None for the connection."""


@dataclass(slots=True)
class Turn:
    """One turn that is open."""

    id: int
    context: str
    settings: TurnSettings
    first_text_at: float
    last_input_at: float
    playback: Playback = field(default_factory=Playback)
    ended: bool = False
    characters: int = 0
    spoken_characters: int = 0
    samples: int = 0
    seconds: float = 0.0
    work_s: float = 0.0
    stages: Mapping[str, float] = field(default_factory=dict)

    @property
    def unspoken(self) -> int:
        """Characters received and not yet spoken."""
        return max(0, self.characters - self.spoken_characters)

    def report(self, reason: str) -> TurnReport:
        """How it went."""
        started = self.playback.started_at
        return TurnReport(
            turn=self.id,
            context=self.context,
            settings=self.settings,
            finish_reason=reason,
            samples=self.samples,
            characters=self.spoken_characters,
            first_packet_s=None if started is None else started - self.first_text_at,
            rtf=self.work_s / self.seconds if self.seconds else None,
            gaps=self.playback.gaps,
            gap_s=self.playback.gap_s,
            stages=self.stages,
        )

    def deadlines(self, limits: Limits) -> list[Deadline]:
        """What this turn may not outlast."""
        due = [Deadline(self.first_text_at + limits.turn_s, "turn_s", self)]
        if not self.ended:
            due.append(Deadline(self.last_input_at + limits.text_wait_s, "text_wait_s", self))
        return due


@dataclass(slots=True)
class Context:
    """A name for one turn at a time."""

    name: str
    settings: TurnSettings
    turn: Turn | None = None
    blank: str = ""
    """White space that came before anything to speak."""
    discarding: bool = False
    closing: bool = False
