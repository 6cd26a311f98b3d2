"""One vocabulary for text and speech, and what a sequence asks of a backend at each step.

Speech-first: the rows of the speech embedding come first (specials included), then the text ids,
then the two extra rows that version 2 keeps in a table of its own. The head covers the speech rows
only, so sampled ids feed straight back in and a sequence is ids and nothing else: prefix caches
can compare it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from antiphon.engine.checkpoint.config import LMConfig
from antiphon.engine.interface import FinishReason


class Constraint(IntEnum):
    """Which ids may be sampled. Numbered, so that a batch can hold one for each row."""

    SPEECH = 0
    """Speech alone: the text is not yet long enough spoken to end."""
    SPEECH_OR_FILL = 1
    """Inside the text: the model may ask for the next block."""
    SPEECH_OR_EOS = 2
    ANY = 3
    """No limit at all (the published behaviour, for golden numbers)."""
    ANY_BUT_FIRST_STOP = 4
    """The published minimum length: only the first id after the speech codes is banned."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Where the kinds of ids lie in the unified table."""

    config: LMConfig

    @property
    def rows(self) -> int:
        """Speech rows: the width of the head."""
        return self.config.ids.rows

    @property
    def size(self) -> int:
        """Rows of the unified table."""
        extra = 0 if self.config.ids.sos_and_task_are_speech_rows else 2
        return self.rows + self.config.backbone.vocab_size + extra

    def text(self, text_id: int) -> int:
        """Return the unified id of a text token."""
        return self.rows + text_id

    @property
    def sos(self) -> int:
        """Start of every sequence."""
        return self._special(self.config.ids.sos)

    @property
    def task(self) -> int:
        """Stands between the text and the speech that no text follows."""
        return self._special(self.config.ids.task)

    def _special(self, row: int) -> int:
        if self.config.ids.sos_and_task_are_speech_rows:
            return row
        return self.rows + self.config.backbone.vocab_size + row

    def allowed(self, constraint: Constraint) -> frozenset[int]:
        """Return the speech rows that may be sampled."""
        ids = self.config.ids
        speech = frozenset(range(ids.first_stop))
        match constraint:
            case Constraint.SPEECH:
                return speech
            case Constraint.SPEECH_OR_FILL:
                return speech | {ids.fill}
            case Constraint.SPEECH_OR_EOS:
                return speech | {ids.eos}
            case Constraint.ANY:
                return frozenset(range(self.rows))
            case Constraint.ANY_BUT_FIRST_STOP:
                return frozenset(range(self.rows)) - {ids.first_stop}


@dataclass(frozen=True, slots=True)
class Sample:
    """Feed `inputs` (unified ids, at least one), then sample.

    `constraint` holds for the next `run` samples, `then` for `then_run` more, as long as each
    sampled id is speech: between them nothing is fed but the sampled id itself. A backend may
    sample one and ask again, or hand the whole run to an engine of its own.
    """

    inputs: tuple[int, ...]
    constraint: Constraint
    run: int = 1
    then: Constraint | None = None
    then_run: int = 0

    @property
    def longest(self) -> int:
        """Samples that may be taken before the sequence must be asked again."""
        return self.run + self.then_run


@dataclass(frozen=True, slots=True)
class Wait:
    """More text is needed. `inputs` may be fed meanwhile, and must be fed before what follows."""

    inputs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class End:
    """The sequence is over."""

    reason: FinishReason


Step = Sample | Wait | End


class Sequence(Protocol):
    """A request as a state machine over ids: no tensors, no clock, no I/O.

    `advance` says what to do next; each `Sample` is answered by one `accept`.
    """

    history: list[int]
    """Sampled ids, forced fills included: what repetition-aware sampling looks back on."""

    def push_text(self, text_ids: tuple[int, ...]) -> None:
        """Add text ids as they arrive."""

    def end_text(self) -> None:
        """Say that no text follows."""

    def advance(self) -> Step:
        """Return what to do now. Inputs are handed out once."""

    def accept(self, sampled: int) -> int | None:
        """Take the sampled id; return it if it is speech to be heard."""

    @property
    def pending_text(self) -> int:
        """Text ids that were pushed and not yet handed out."""


@dataclass(slots=True)
class SpeechTally:
    """What is counted over the speech of one request."""

    silent_ids: frozenset[int]
    max_silent_run: int
    max_loop: int | None
    """Tokens for which a cycle may go on; None: as long as it likes."""
    count: int = 0
    looping: bool = False
    _silent_run: int = 0
    _recent: list[int] = field(default_factory=list)
    _matched: list[int] = field(default_factory=lambda: [0] * LONGEST_CYCLE)

    def add(self, token: int) -> bool:
        """Count a speech token; return whether it is to be heard.

        The sixth and later of a run of silent tokens are not: the LM keeps them in its context,
        the flow never sees them.
        """
        self.count += 1
        self._watch_for_loops(token)
        self._silent_run = self._silent_run + 1 if token in self.silent_ids else 0
        return self._silent_run <= self.max_silent_run

    def _watch_for_loops(self, token: int) -> None:
        recent = self._recent
        for period in range(1, min(len(recent), LONGEST_CYCLE) + 1):
            same = recent[-period] == token
            self._matched[period - 1] = self._matched[period - 1] + 1 if same else 0
        recent.append(token)
        del recent[:-LONGEST_CYCLE]
        if self.max_loop is not None:
            self.looping |= max(self._matched) >= self.max_loop


LONGEST_CYCLE = 12
"""Tokens (0.5 s at 25 a second) of the longest repetition that counts as a loop."""
MAX_LOOP_TOKENS = 75
"""Three seconds of one and the same cycle: longer than any pause or vowel."""
