"""The two sequence layouts as state machines over ids.

Plain:      start, prompt text, text, task, prompt speech → speech … eos
Bi-stream:  start, instruction, then blocks of t text and s speech ids; after the text has ended its
            rest (fewer than t), task, and speech … eos

The checkpoint's mix ratio is t:s. Speech token n, counted from the beginning of the prompt, comes
after t·(n // s + 1) text ids. After s of speech the model emits a fill; it is sampled or, at the
block's end, understood. A fill is never fed back: the next text follows the last speech token.

A full block is taken whenever t text ids are there, whether or not the text has ended, as in
training. So the sequence depends on the text alone, never on the moments of its arrival.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from antiphon.engine.errors import InvalidRequest
from antiphon.engine.interface import FinishReason
from antiphon.engine.speech_lm.layout import (
    MAX_LOOP_TOKENS,
    Constraint,
    End,
    Sample,
    SpeechTally,
    Step,
    Vocabulary,
    Wait,
)
from antiphon.engine.voice.voice import LMPrompt


@dataclass(frozen=True, slots=True)
class Lengths:
    """Bounds of the speech for each text id of the caller's."""

    min_ratio: float
    max_ratio: float


def split_instruction(
    prompt_text: tuple[int, ...], end_of_prompt: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Split a prompt text behind its last `<|endofprompt|>`: instruction, transcript."""
    for position in range(len(prompt_text) - 1, -1, -1):
        if prompt_text[position] == end_of_prompt:
            return prompt_text[: position + 1], prompt_text[position + 1 :]
    return (), prompt_text


class _Machine:
    """What both layouts share: counting, the final phase, the end."""

    def __init__(self, vocabulary: Vocabulary, lengths: Lengths) -> None:
        config = vocabulary.config
        self.history: list[int] = []
        self._vocabulary = vocabulary
        self._ids = config.ids
        self._lengths = lengths
        self._tally = SpeechTally(config.silent_ids, config.max_silent_run, MAX_LOOP_TOKENS)
        self._inputs: list[int] = []
        self._callers_text = 0
        self._final = False
        """Set once the task id is in the inputs: nothing but speech and eos follows."""
        self._end: End | None = None

    def _take_inputs(self) -> tuple[int, ...]:
        inputs = tuple(self._inputs)
        self._inputs.clear()
        return inputs

    def _append_text(self, text_ids: Iterable[int]) -> None:
        self._inputs.extend(self._vocabulary.text(text_id) for text_id in text_ids)

    def _sample_final(self) -> Step:
        left = int(self._lengths.max_ratio * self._callers_text) - self._tally.count
        if left <= 0:
            self._end = End(FinishReason.LENGTH)
            return self._end
        closed = int(self._lengths.min_ratio * self._callers_text) - self._tally.count
        inputs = self._take_inputs()
        if closed <= 0:
            return Sample(inputs, Constraint.SPEECH_OR_EOS, left)
        closed = min(closed, left)
        return Sample(inputs, Constraint.SPEECH, closed, Constraint.SPEECH_OR_EOS, left - closed)

    def _accept_speech(self, sampled: int) -> int | None:
        self._inputs.append(sampled)
        heard = self._tally.add(sampled)
        if self._tally.looping:
            self._end = End(FinishReason.TOKEN_LOOP)
        return sampled if heard else None


class PlainSequence(_Machine):
    """The whole text before the first speech token."""

    def __init__(
        self, vocabulary: Vocabulary, prompt: LMPrompt, text: tuple[int, ...], lengths: Lengths
    ) -> None:
        super().__init__(vocabulary, lengths)
        self._callers_text = len(text)
        if not text:
            self._end = End(FinishReason.EMPTY)
        self._inputs.append(vocabulary.sos)
        self._append_text((*prompt.text_ids, *text))
        self._inputs.append(vocabulary.task)
        self._inputs.extend(prompt.speech_ids)
        self._final = True

    @property
    def pending_text(self) -> int:
        """Always 0: the text was handed out at the start."""
        return 0

    def push_text(self, text_ids: tuple[int, ...]) -> None:
        """Not for this layout."""
        raise AssertionError("the plain layout takes its text at once")

    def end_text(self) -> None:
        """Nothing to do: the text was whole."""

    def advance(self) -> Step:
        """See `Sequence`."""
        return self._end or self._sample_final()

    def accept(self, sampled: int) -> int | None:
        """See `Sequence`."""
        self.history.append(sampled)
        if sampled >= self._ids.first_stop:
            self._end = End(FinishReason.STOP)
            return None
        return self._accept_speech(sampled)


class BistreamSequence(_Machine):
    """Text that is still arriving, interleaved with the speech that it allows."""

    def __init__(
        self, vocabulary: Vocabulary, prompt: LMPrompt, end_of_prompt: int, lengths: Lengths
    ) -> None:
        super().__init__(vocabulary, lengths)
        self._block_text, self._block_speech = vocabulary.config.mix_ratio
        instruction, transcript = split_instruction(prompt.text_ids, end_of_prompt)
        self._inputs.append(vocabulary.sos)
        self._append_text(instruction)
        self._text = deque(transcript)
        self._prompt_left = len(transcript)
        """Text ids of the prompt among those that wait."""
        self._prompt_speech = deque(prompt.speech_ids)
        self._room = 0
        """Speech tokens that the open block still takes; 0: the next text comes first."""
        self._ended = False

    @property
    def pending_text(self) -> int:
        """See `Sequence`."""
        return len(self._text)

    def push_text(self, text_ids: tuple[int, ...]) -> None:
        """See `Sequence`."""
        assert not self._ended, "text after its end"
        self._text.extend(text_ids)
        self._callers_text += len(text_ids)

    def end_text(self) -> None:
        """See `Sequence`."""
        self._ended = True

    def advance(self) -> Step:
        """See `Sequence`."""
        if self._end is not None:
            return self._end
        if self._ended and self._callers_text == 0:
            self._end = End(FinishReason.EMPTY)
            return self._end
        while not self._final and not self._room:
            if len(self._text) >= self._block_text:
                self._open_block()
            elif self._ended:
                self._close_text()
            else:
                return Wait(self._take_inputs())
        if self._final:
            return self._sample_final()
        return Sample(self._take_inputs(), Constraint.SPEECH_OR_FILL, self._room)

    def _open_block(self) -> None:
        self._append_text(self._text.popleft() for _ in range(self._block_text))
        self._prompt_left = max(0, self._prompt_left - self._block_text)
        taken = min(self._block_speech, len(self._prompt_speech))
        self._inputs.extend(self._prompt_speech.popleft() for _ in range(taken))
        self._room = self._block_speech - taken
        if self._room and not self._heard_caller():
            # The prompt has more text than its speech used up: speaking now would speak the
            # prompt's transcript. The next block of text follows at once.
            self._room = 0

    def _heard_caller(self) -> bool:
        """Whether some of the caller's text has been handed out."""
        return self._callers_text > 0 and len(self._text) < self._callers_text + self._prompt_left

    def _close_text(self) -> None:
        self._append_text(self._text)
        self._text.clear()
        self._inputs.append(self._vocabulary.task)
        # Text shorter than the prompt: the prompt's rest stays context, it is not spoken.
        self._inputs.extend(self._prompt_speech)
        self._prompt_speech.clear()
        self._final = True

    def accept(self, sampled: int) -> int | None:
        """See `Sequence`."""
        self.history.append(sampled)
        if self._final:
            if sampled >= self._ids.first_stop:
                self._end = End(FinishReason.STOP)
                return None
            return self._accept_speech(sampled)
        if sampled == self._ids.fill:
            self._room = 0
            return None
        self._room -= 1
        heard = self._accept_speech(sampled)
        if not self._room:
            self.history.append(self._ids.fill)
        return heard


def check_prompt(
    config_needs_it: bool, end_of_prompt: int, prompt: LMPrompt, text: tuple[int, ...] | None
) -> None:
    """Refuse a request that the checkpoint was not trained for.

    Raises:
        InvalidRequest: version 3 without `<|endofprompt|>`; `text` None means that it streams, so
            the prompt must hold it.
    """
    held = end_of_prompt in prompt.text_ids or (text is not None and end_of_prompt in text)
    if config_needs_it and not held:
        raise InvalidRequest(
            "This checkpoint needs <|endofprompt|> in the prompt text (it ends the instruction).",
            field="prompt",
        )
