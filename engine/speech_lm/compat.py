"""The published implementation's sequences, faults included, for golden numbers.

Reachable from tests only: a backend is built with `compat=True`. What differs from `interleave.py`:

- the id that the minimum length bans is the first after the speech codes, in version 3 not eos;
- text is taken one block for each arriving piece, and the first block of version 3 without speech
  prompt starts before any text;
- prompt speech that short text leaves over is dropped;
- the last speech token is fed twice when the text ends after a fill;
- special ids in mid-stream raise; there is no maximum after the text's end, and no loop is noticed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator

from antiphon.engine.errors import SynthesisFailed
from antiphon.engine.interface import FinishReason
from antiphon.engine.speech_lm.interleave import Lengths, split_instruction
from antiphon.engine.speech_lm.layout import (
    Constraint,
    End,
    Sample,
    SpeechTally,
    Step,
    Vocabulary,
    Wait,
)
from antiphon.engine.voice.voice import LMPrompt

UNBOUNDED = 1000
"""Stands for the maximum that the published bi-stream decoding does not have."""

Script = Generator[Sample | Wait, int, FinishReason]


class _Scripted:
    """Runs a generator that yields steps and is sent the sampled ids."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.history: list[int] = []
        self._vocabulary = vocabulary
        self._ids = vocabulary.config.ids
        config = vocabulary.config
        self._tally = SpeechTally(config.silent_ids, config.max_silent_run, None)
        self._script: Script
        self._step: Step | None = None
        self._pieces: deque[tuple[int, ...]] = deque()
        self._ended = False

    @property
    def pending_text(self) -> int:
        """See `Sequence`."""
        return sum(map(len, self._pieces))

    def push_text(self, text_ids: tuple[int, ...]) -> None:
        """See `Sequence`."""
        self._pieces.append(text_ids)

    def end_text(self) -> None:
        """See `Sequence`."""
        self._ended = True

    def advance(self) -> Step:
        """See `Sequence`."""
        if self._step is None:
            self._run(None)
        while isinstance(self._step, Wait) and (self._pieces or self._ended):
            self._run(None)
        assert self._step is not None
        return self._step

    def _run(self, sampled: int | None) -> None:
        try:
            self._step = self._script.send(sampled)  # type: ignore[arg-type]
        except StopIteration as stop:
            self._step = End(stop.value)

    def accept(self, sampled: int) -> int | None:
        """See `Sequence`."""
        self.history.append(sampled)
        self._run(sampled)
        if sampled >= self._ids.first_stop:
            return None
        return sampled if self._tally.add(sampled) else None


class UpstreamPlain(_Scripted):
    """The plain layout with the published stop rules."""

    def __init__(
        self, vocabulary: Vocabulary, prompt: LMPrompt, text: tuple[int, ...], lengths: Lengths
    ) -> None:
        super().__init__(vocabulary)
        self._script = self._plain(prompt, text, lengths)

    def _plain(self, prompt: LMPrompt, text: tuple[int, ...], lengths: Lengths) -> Script:
        place = self._vocabulary
        inputs: tuple[int, ...] = (
            place.sos,
            *map(place.text, (*prompt.text_ids, *text)),
            place.task,
            *prompt.speech_ids,
        )
        shortest = int(lengths.min_ratio * len(text))
        longest = int(lengths.max_ratio * len(text))
        for step in range(longest):
            early = max(0, min(shortest, longest) - step)
            late = longest - step - early
            if early:
                closed = Constraint.ANY_BUT_FIRST_STOP
                sampled = yield Sample(inputs, closed, early, Constraint.ANY, late)
            else:
                sampled = yield Sample(inputs, Constraint.ANY, late)
            if sampled >= self._ids.first_stop:
                return FinishReason.STOP
            inputs = (sampled,)
        return FinishReason.LENGTH


class UpstreamBistream(_Scripted):
    """The bi-stream layout as published."""

    def __init__(self, vocabulary: Vocabulary, prompt: LMPrompt, end_of_prompt: int) -> None:
        super().__init__(vocabulary)
        text, speech = prompt.text_ids, prompt.speech_ids
        instruction: tuple[int, ...] = ()
        if vocabulary.config.needs_end_of_prompt:
            instruction, text = split_instruction(text, end_of_prompt)
        self._text = deque(map(vocabulary.text, text))
        self._speech = deque(speech)
        per_text, per_speech = vocabulary.config.mix_ratio
        self._per_text, self._per_speech = per_text, per_speech
        self._next_fill = (len(speech) // per_speech + 1) * per_speech - len(speech)
        self._inputs: list[int] = [vocabulary.sos, *map(vocabulary.text, instruction)]
        self._unfed: tuple[int, ...] = ()
        """What a forced fill left to feed before anything else."""
        self._script = self._stream()

    def _stream(self) -> Script:
        while True:
            while not self._pieces:
                if self._ended:
                    return (yield from self._finish())
                yield Wait()
            self._text.extend(map(self._vocabulary.text, self._pieces.popleft()))
            self._interleave_prompt()
            if not self._speech and self._take_block():
                yield from self._decode_block()

    def _interleave_prompt(self) -> None:
        while self._speech and len(self._text) >= self._per_text:
            self._inputs.extend(self._text.popleft() for _ in range(self._per_text))
            taken = min(self._per_speech, len(self._speech))
            self._inputs.extend(self._speech.popleft() for _ in range(taken))

    def _take_block(self) -> bool:
        """Return whether decoding goes on; a block of text is taken where one is due."""
        after_fill = bool(self.history) and self.history[-1] == self._ids.fill
        if not after_fill and (self.history or len(self._inputs) > 1):
            return True
        if len(self._text) < self._per_text:
            return False
        if after_fill:
            self._inputs.clear()
        self._inputs.extend(self._text.popleft() for _ in range(self._per_text))
        return True

    def _sample(self, constraint: Constraint, run: int) -> Sample:
        inputs = (*self._unfed, *self._inputs)
        self._unfed = ()
        return Sample(inputs, constraint, run)

    def _decode_block(self) -> Generator[Sample, int, None]:
        while True:
            position = len(self.history)
            if position == self._next_fill:
                # The published code feeds the last token and throws the result away.
                self._unfed = tuple(self._inputs)
                sampled = self._ids.fill
                self.history.append(sampled)
            else:
                sampled = yield self._sample(
                    Constraint.ANY_BUT_FIRST_STOP, self._next_fill - position
                )
            if sampled == self._ids.fill:
                self._next_fill = position + self._per_speech + 1
                return
            self._refuse_specials(sampled)
            self._inputs = [sampled]

    def _refuse_specials(self, sampled: int) -> None:
        if sampled >= self._ids.first_stop:
            raise SynthesisFailed(f"should not get token {sampled}")

    def _finish(self) -> Generator[Sample, int, FinishReason]:
        # Where text was spoken before, the inputs still hold the last speech token: fed again.
        self._inputs.extend(self._text)
        self._inputs.append(self._vocabulary.task)
        while True:
            sampled = yield self._sample(Constraint.ANY, UNBOUNDED)
            if sampled == self._ids.eos:
                return FinishReason.STOP
            self._refuse_specials(sampled)
            self._inputs = [sampled]
