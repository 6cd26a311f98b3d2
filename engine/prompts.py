"""What the stages hear of a voice, in each mode and generation.

                 speech LM, version 1           speech LM, versions 2 and 3        flow
    preset       speaker                        (instruction) text                 embedding
    zero-shot    speaker, transcript, tokens    (instruction) transcript, tokens   prompt, embedding
    cross-ling.  speaker, language tag          (instruction)                      prompt, embedding
    instruct     instruction                    instruction                        prompt, embedding

The instruction ends with `<|endofprompt|>`. Version 3 always has one, "You are a helpful
assistant." where none is asked for; the nano checkpoint has an empty one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from antiphon.engine.acoustic.interface import CHUNK_TOKENS, LOOK_AHEAD_TOKENS
from antiphon.engine.checkpoint import Checkpoint
from antiphon.engine.checkpoint.config import ModelGeneration
from antiphon.engine.checkpoint.special_tokens import END_OF_PROMPT
from antiphon.engine.checkpoint.voices import StoredVoice, acoustic_prompt
from antiphon.engine.errors import InvalidRequest, UnsupportedFeature
from antiphon.engine.generations import front_end, is_phone_coded, traits
from antiphon.engine.interface import MAX_INSTRUCTION, Mode
from antiphon.engine.speech_lm.interleave import split_instruction
from antiphon.engine.speech_lm.prompt_fit import FittedPrompt, fit_prompt
from antiphon.engine.text.validate import validate_text
from antiphon.engine.voice.record import Voice
from antiphon.engine.voice.voice import AcousticPrompt, LMPrompt

SYSTEM_PROMPT = "You are a helpful assistant."
"""With which version 3 was trained."""
_END_OF_PROMPT_V1 = "<endofprompt>"
"""Plain text there, without bars."""
_LANGUAGE_TAGS_V1 = {
    "zh": "<|zh|>", "en": "<|en|>", "ja": "<|jp|>", "yue": "<|yue|>", "ko": "<|ko|>",
}  # fmt: skip
"""As its model card writes them in front of a cross-lingual text."""


@dataclass(frozen=True, slots=True, eq=False)
class PromptVoice:
    """A voice as ids and arrays of one checkpoint, before a mode is chosen."""

    name: str
    language: str
    """BCP 47; empty where unknown."""
    lm: LMPrompt
    """All there is: transcript, speech tokens, speaker."""
    acoustic: AcousticPrompt


class PromptMaker:
    """Prompts for one checkpoint."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._generation = checkpoint.generation
        self._tokenizer = checkpoint.tokenizer
        self._phones = is_phone_coded(checkpoint)
        self._modes = traits(checkpoint).modes

    def stored(self, voice: StoredVoice) -> PromptVoice:
        """Take a voice that came with the checkpoint."""
        language = "en" if self._phones else ""
        lm = replace(voice.lm, speaker=tuple(voice.lm_embedding.tolist()))
        return PromptVoice(voice.name, language, lm, self._fitted(voice.acoustic))

    def recorded(self, voice: Voice) -> PromptVoice:
        """Take a voice from a recording made for this checkpoint.

        Raises:
            InvalidRequest: its tokens or its transcript are none of this checkpoint's.
        """
        make = front_end(self._checkpoint, voice.language or None)
        stream = make()
        pieces = [*stream.push(voice.transcript), *stream.end()]
        text = [token for piece in pieces for token in piece.ids]
        lm = voice.lm_prompt(text)
        return PromptVoice(voice.name, voice.language, lm, self._fitted(voice.acoustic_prompt()))

    def mode(
        self, voice: PromptVoice, language: str | None = None, instruct: str | None = None
    ) -> Mode:
        """Return how a voice is used for a request.

        A transcript in another language than the one asked for would pull the speech towards its
        own, so that the voice is used without it (cross-lingual).

        Raises:
            UnsupportedFeature: instructions that the checkpoint does not follow.
        """
        if instruct:
            if Mode.INSTRUCT not in self._modes:
                raise UnsupportedFeature(
                    f"The model {self._checkpoint.name} takes no instructions.", field="instruct"
                )
            return Mode.INSTRUCT
        if not len(voice.acoustic.tokens):
            return Mode.PRESET
        _, transcript = self._split(voice.lm.text_ids)
        if not transcript or not voice.lm.speech_ids:
            return Mode.CROSS_LINGUAL
        if language and voice.language and _primary(language) != _primary(voice.language):
            return Mode.CROSS_LINGUAL
        return Mode.ZERO_SHOT

    def fit(
        self, voice: PromptVoice, language: str | None = None, instruct: str | None = None
    ) -> FittedPrompt:
        """Return what the speech LM is to hear for a request.

        Raises:
            UnsupportedFeature: instructions that the checkpoint does not follow.
            InvalidRequest: instructions that are too long or hold control characters.
        """
        mode = self.mode(voice, language, instruct)
        if self._generation is ModelGeneration.V1:
            return FittedPrompt(self._first_generation(voice, mode, language, instruct), 1)
        instruction, transcript = self._split(voice.lm.text_ids)
        if instruct:
            instruction = self._instruction(instruct)
        elif not instruction and self._checkpoint.lm_config.needs_end_of_prompt:
            instruction = self._instruction("")
        whole = mode is Mode.ZERO_SHOT
        return fit_prompt(
            LMPrompt(
                (*instruction, *(transcript if whole else ())),
                voice.lm.speech_ids if whole else (),
            ),
            mix_ratio=self._checkpoint.lm_config.mix_ratio,
            end_of_prompt=self._tokenizer.end_of_prompt,
            allow_empty=self._phones,
        )

    def _first_generation(
        self, voice: PromptVoice, mode: Mode, language: str | None, instruct: str | None
    ) -> LMPrompt:
        if instruct:
            text = _checked(instruct).replace(_END_OF_PROMPT_V1, "") + _END_OF_PROMPT_V1
            return LMPrompt(tuple(self._tokenizer.encode(text)))
        if mode is Mode.ZERO_SHOT:
            return voice.lm
        tag = ""
        if mode is Mode.CROSS_LINGUAL and language:
            tag = _LANGUAGE_TAGS_V1.get(_primary(language), "")
        return LMPrompt(tuple(self._tokenizer.encode(tag)), (), voice.lm.speaker)

    def _instruction(self, instruct: str) -> tuple[int, ...]:
        text = _checked(instruct)
        if self._generation is ModelGeneration.V3 and not self._phones:
            text = f"{SYSTEM_PROMPT} {text.removeprefix(SYSTEM_PROMPT).strip()}".strip()
        return (*self._tokenizer.encode(text), self._tokenizer.end_of_prompt)

    def _split(self, text: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Instruction and transcript of a prompt's text."""
        if self._generation is ModelGeneration.V1:
            return (), text
        return split_instruction(text, self._tokenizer.end_of_prompt)

    def _fitted(self, prompt: AcousticPrompt) -> AcousticPrompt:
        """Version 1 solves all of the prompt with every window, in no chunks."""
        return prompt if self._generation is ModelGeneration.V1 else on_the_grid(prompt)


def on_the_grid(prompt: AcousticPrompt) -> AcousticPrompt:
    """Cut a prompt to the most tokens of the form 25·k + 3; a shorter one stays as it is.

    Prompt and first hop then meet the flow's attention chunks.
    """
    chunks = (len(prompt.tokens) - LOOK_AHEAD_TOKENS) // CHUNK_TOKENS
    count = chunks * CHUNK_TOKENS + LOOK_AHEAD_TOKENS
    if chunks < 1 or count == len(prompt.tokens):
        return prompt
    ratio = len(prompt.mel) // len(prompt.tokens)
    return acoustic_prompt(
        np.ascontiguousarray(prompt.tokens[:count]),
        np.ascontiguousarray(prompt.mel[: count * ratio]),
        prompt.embedding,
    )


def _checked(instruct: str) -> str:
    """Return an instruction that can only be read as one.

    Tokens that steer the model are written `<|…|>`; without bars no text is mistaken for one.

    Raises:
        InvalidRequest: too long, or with control characters.
    """
    if len(instruct) > MAX_INSTRUCTION:
        raise InvalidRequest(
            f"An instruction has at most {MAX_INSTRUCTION} characters.",
            field="instruct",
            limit=MAX_INSTRUCTION,
        )
    try:
        validate_text(instruct)
    except InvalidRequest as error:
        raise InvalidRequest(error.message, field="instruct") from None
    return instruct.strip().removesuffix(END_OF_PROMPT).replace("|", "").strip()


def _primary(language: str) -> str:
    return language.split("-")[0].lower()
