"""What the speech LM's benchmark speaks, on any checkpoint or on the published size."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from antiphon.engine.checkpoint import Checkpoint, open_checkpoint
from antiphon.engine.speech_lm.layout import Vocabulary
from antiphon.engine.speech_lm.request import Sampling, SpeechLMRequest
from antiphon.engine.speech_lm.sequences import SequenceBuilder
from antiphon.engine.voice.voice import LMPrompt
from bench.full_models import QWEN2, RandomCheckpoint

TEXT_IDS, MAX_RATIO = 40, 4.0
PROMPT_BLOCKS = 8
"""Blocks of text and speech in the voice prompt of the cache measurement."""
END_OF_PROMPT = 151646
SENTENCE = " the people are walking in the street and the river keeps flowing towards the sea,"


@dataclass(frozen=True)
class Subject:
    """What is spoken: made-up text of real ids, so that any checkpoint can be measured."""

    checkpoint: Checkpoint
    sentence: tuple[int, ...]
    end_of_prompt: int

    @classmethod
    def of(cls, model: Path | None) -> Subject:
        """Take a model directory; None: CosyVoice 3 at its published size, weights drawn."""
        if model is None:
            numbers = np.random.default_rng(0)
            sentence = tuple(numbers.integers(0, QWEN2.vocab_size - 1000, 40).tolist())
            return cls(RandomCheckpoint(3), sentence, END_OF_PROMPT)
        checkpoint = open_checkpoint(model)
        return cls(
            checkpoint,
            tuple(checkpoint.tokenizer.encode(SENTENCE)),
            checkpoint.tokenizer.end_of_prompt,
        )

    @property
    def builder(self) -> SequenceBuilder:
        return SequenceBuilder(Vocabulary(self.checkpoint.lm_config), self.end_of_prompt)

    @property
    def sampling(self) -> Sampling:
        ras = self.checkpoint.lm_config.sampling
        return Sampling(ras.top_p, ras.top_k, ras.win_size, ras.tau_r)

    @property
    def bare(self) -> LMPrompt:
        return LMPrompt((self.end_of_prompt,))

    def text(self, seed: int, count: int = TEXT_IDS) -> tuple[int, ...]:
        sentence = self.sentence
        start = seed % len(sentence)
        return tuple((sentence * (2 + count // len(sentence)))[start : start + count])

    def voice(self, seed: int, blocks: int = PROMPT_BLOCKS) -> LMPrompt:
        """A prompt whose own text fills whole blocks."""
        config = self.checkpoint.lm_config
        per_text, per_speech = config.mix_ratio
        numbers = np.random.default_rng(seed)
        speech = numbers.integers(0, config.speech_token_size, blocks * per_speech)
        text = (*self.bare.text_ids, *self.text(seed, blocks * per_text))
        return LMPrompt(text, tuple(int(token) for token in speech))

    def request(self, seed: int, **changes: Any) -> SpeechLMRequest:
        request = SpeechLMRequest(
            self.bare,
            whole(self.text(seed)),
            replace(self.sampling, seed=seed),
            min_ratio=MAX_RATIO,
            max_ratio=MAX_RATIO,
        )
        return replace(request, **changes)


async def whole(text: tuple[int, ...]) -> AsyncIterator[Sequence[int]]:
    """Text that is there at once, in the layout of live sessions."""
    yield text
