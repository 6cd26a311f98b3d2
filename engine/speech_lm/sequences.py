"""A request's layout: plain for whole text, bi-stream for text that arrives."""

from __future__ import annotations

from collections.abc import AsyncIterator

from antiphon.engine.errors import InvalidRequest
from antiphon.engine.speech_lm.compat import UpstreamBistream, UpstreamPlain
from antiphon.engine.speech_lm.interleave import (
    BistreamSequence,
    Lengths,
    PlainSequence,
    check_prompt,
    split_instruction,
)
from antiphon.engine.speech_lm.layout import Sequence, Vocabulary
from antiphon.engine.speech_lm.request import SpeechLMRequest


class SequenceBuilder:
    """Builds the state machine of a request for one checkpoint."""

    def __init__(self, vocabulary: Vocabulary, end_of_prompt: int, *, compat: bool = False) -> None:
        self.vocabulary = vocabulary
        self._end_of_prompt = end_of_prompt
        self.compat = compat

    def build(self, request: SpeechLMRequest) -> Sequence:
        """Return the sequence of a request.

        Raises:
            InvalidRequest: ids out of range, a missing `<|endofprompt|>`.
        """
        streaming = isinstance(request.text, AsyncIterator)
        text = () if isinstance(request.text, AsyncIterator) else tuple(request.text)
        prompt = request.prompt
        self.check_text(text)
        self.check_text(prompt.text_ids, "prompt")
        codes = self.vocabulary.config.speech_token_size
        if any(not 0 <= token < codes for token in prompt.speech_ids):
            raise InvalidRequest("The prompt has speech ids out of range.", field="prompt")
        lengths = Lengths(request.min_ratio, request.max_ratio)
        needed = self.vocabulary.config.needs_end_of_prompt and bool(streaming or text)
        check_prompt(needed, self._end_of_prompt, prompt, None if streaming else text)
        if self.compat and streaming:
            return UpstreamBistream(self.vocabulary, prompt, self._end_of_prompt)
        if self.compat:
            return UpstreamPlain(self.vocabulary, prompt, text, lengths)
        if streaming:
            return BistreamSequence(self.vocabulary, prompt, self._end_of_prompt, lengths)
        return PlainSequence(self.vocabulary, prompt, text, lengths)

    def split(self, prompt_text: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Split a prompt's text into instruction and transcript."""
        return split_instruction(prompt_text, self._end_of_prompt)

    def check_text(self, ids: tuple[int, ...], field: str = "text") -> None:
        """Refuse text ids that the checkpoint has no row for.

        Raises:
            InvalidRequest: naming the field.
        """
        rows = self.vocabulary.config.backbone.vocab_size
        if any(not 0 <= token < rows for token in ids):
            raise InvalidRequest("There are text ids out of range.", field=field, limit=rows - 1)
