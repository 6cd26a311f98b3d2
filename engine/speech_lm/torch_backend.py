"""The speech LM in this process: one worker thread, one batch, an asyncio front.

lm = TorchSpeechLM.load(checkpoint, slots=8)
async for token in lm.generate(SpeechLMRequest(prompt, text, sampling)):
    …
await lm.close()
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from typing import Final

import torch

from antiphon.engine.checkpoint import Checkpoint
from antiphon.engine.errors import InvalidRequest
from antiphon.engine.speech_lm.decoder import Decoder, Job, Pick
from antiphon.engine.speech_lm.qwen2 import Qwen2SpeechLM
from antiphon.engine.speech_lm.request import SpeechLMRequest
from antiphon.engine.speech_lm.sampling import sample
from antiphon.engine.speech_lm.sequences import SequenceBuilder
from antiphon.engine.speech_lm.torch_worker import TorchWorker

MAX_AHEAD_TOKENS: Final = 250
"""Ten seconds of speech that nobody has taken: the sequence then pauses."""


class TorchSpeechLM(TorchWorker[Job]):
    """`SpeechLM` on torch. One instance serves all sessions of a process."""

    def __init__(
        self,
        model: Qwen2SpeechLM,
        builder: SequenceBuilder,
        *,
        slots: int,
        positions: int,
        max_waiting: int,
        prefill_positions: int = 64,
        pick: Pick = sample,
    ) -> None:
        self.builder = builder
        self._positions = positions
        decoder = Decoder(
            model,
            slots=slots,
            positions=positions,
            prefill_positions=prefill_positions,
            dtype=model.dtype,
            pick=pick,
        )
        super().__init__(decoder, capacity=slots + max_waiting, name="speech-lm")

    @classmethod
    def load(
        cls,
        checkpoint: Checkpoint,
        *,
        slots: int = 8,
        positions: int = 2048,
        max_waiting: int = 16,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
        compat: bool = False,
        pick: Pick = sample,
    ) -> TorchSpeechLM:
        """Load the speech LM of a checkpoint (version 2 or 3).

        Args:
            checkpoint: where the weights come from.
            slots: sequences that decode together; the cache for all of them is reserved here.
            positions: ids (text and speech, prompt included) that one sequence may hold.
            max_waiting: sequences that may queue for a slot before a request is refused.
            dtype: of weights and cache.
            device: `cpu` or a CUDA device.
            compat: the published implementation's sequences, faults included (golden tests).
            pick: the sampler; replaced by scripts in tests.

        Raises:
            CheckpointError: weights that do not fit the configuration.
        """
        config = checkpoint.lm_config
        positions = min(positions, config.backbone.max_position_embeddings)
        model = Qwen2SpeechLM(
            config, checkpoint.lm_state_dict(), positions=positions, dtype=dtype, device=device
        )
        end_of_prompt = checkpoint.tokenizer.end_of_prompt
        builder = SequenceBuilder(model.vocabulary, end_of_prompt, compat=compat)
        return cls(
            model, builder, slots=slots, positions=positions, max_waiting=max_waiting, pick=pick
        )

    def make_job(self, request: SpeechLMRequest) -> Job:
        """See `TorchWorker.make_job`."""
        sequence = self.builder.build(request)
        known = len(request.prompt.text_ids) + len(request.prompt.speech_ids) + 2
        if not isinstance(request.text, AsyncIterator):
            known += len(request.text)
        if known >= self._positions:
            raise InvalidRequest(
                f"Prompt and text take {known} ids, more than one sequence may hold.",
                field="text",
                limit=self._positions,
            )
        seed = request.sampling.seed
        seed = secrets.randbits(63) if seed is None else seed
        return Job(sequence, request.sampling, seed, MAX_AHEAD_TOKENS)

    def check_text(self, ids: tuple[int, ...]) -> None:
        """See `TorchWorker.check_text`."""
        self.builder.check_text(ids)
