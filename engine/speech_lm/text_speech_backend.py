"""CosyVoice 1's speech LM as a backend: `TorchWorker` around its decoder."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import torch

from antiphon.engine.checkpoint import Checkpoint
from antiphon.engine.checkpoint.weights import load_module
from antiphon.engine.errors import InvalidRequest
from antiphon.engine.speech_lm.layout import MAX_LOOP_TOKENS, SpeechTally
from antiphon.engine.speech_lm.request import SpeechLMRequest
from antiphon.engine.speech_lm.text_speech_decoder import (
    TextSpeechDecoder,
    TextSpeechJob,
    WholeText,
)
from antiphon.engine.speech_lm.text_speech_lm import SequenceMemory, TextSpeechLM
from antiphon.engine.speech_lm.torch_worker import TorchWorker


class TorchTextSpeechLM(TorchWorker[TextSpeechJob]):
    """`SpeechLM` for version 1. One instance serves all sessions of a process."""

    def __init__(
        self, model: TextSpeechLM, *, slots: int = 8, max_waiting: int = 16, positions: int = 4096
    ) -> None:
        """Serve `slots` requests at once; `max_waiting` more queue before one is refused.

        `positions` bounds text, prompt and speech of one request together.
        """
        self._model = model
        self._positions = positions
        decoder = TextSpeechDecoder(model, slots=slots, positions=positions)
        super().__init__(decoder, capacity=slots + max_waiting, name="speech-lm-1")

    @classmethod
    def load(
        cls,
        checkpoint: Checkpoint,
        *,
        slots: int = 8,
        max_waiting: int = 16,
        device: torch.device | str = "cpu",
    ) -> TorchTextSpeechLM:
        """Load the speech LM of a checkpoint of version 1.

        Raises:
            CheckpointError: weights that do not fit the configuration.
        """
        model = TextSpeechLM(checkpoint.text_speech_lm_config)
        load_module(model, checkpoint.lm_state_dict(), "llm.pt")
        model.to(device).eval().requires_grad_(False)
        return cls(model, slots=slots, max_waiting=max_waiting)

    def make_job(self, request: SpeechLMRequest) -> TextSpeechJob:
        """See `TorchWorker.make_job`."""
        config, prompt = self._model.config, request.prompt
        _check_ids("prompt.text_ids", prompt.text_ids, config.text_token_size)
        _check_ids("prompt.speech_ids", prompt.speech_ids, config.speech_token_size)
        if len(prompt.speaker) not in (0, config.spk_embed_dim):
            raise InvalidRequest(
                f"The speaker embedding must have {config.spk_embed_dim} numbers.",
                field="prompt.speaker",
                limit=config.spk_embed_dim,
            )
        taken = len(prompt.text_ids) + len(prompt.speech_ids) + 4
        text = WholeText(max(0, self._positions - taken))
        if not isinstance(request.text, AsyncIterator):
            ids = tuple(request.text)
            self.check_text(ids)
            text.push_text(ids)
            text.end_text()
        if text.too_long:
            raise InvalidRequest(
                f"Prompt and text take {taken + len(text.ids)} positions, more than one sequence "
                "may hold.",
                field="text",
                limit=self._positions,
            )
        seed = request.sampling.seed
        return TextSpeechJob(
            request,
            text,
            secrets.randbits(63) if seed is None else seed,
            SequenceMemory(config.llm.num_blocks),
            # Twice as many tokens a second as in the later versions.
            SpeechTally(frozenset(), 0, 2 * MAX_LOOP_TOKENS),
        )

    def check_text(self, ids: tuple[int, ...]) -> None:
        """See `TorchWorker.check_text`."""
        _check_ids("text", ids, self._model.config.text_token_size)


def _check_ids(name: str, ids: tuple[int, ...], limit: int) -> None:
    if any(not 0 <= token < limit for token in ids):
        raise InvalidRequest(
            f"{name} has an id outside 0 to {limit - 1}.", field=name, limit=limit - 1
        )
