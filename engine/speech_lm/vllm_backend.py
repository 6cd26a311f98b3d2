"""The speech LM hosted by vLLM: text streams in, voices' prompts come from the prefix cache.

A streaming request is one vLLM request with `StreamingInput`: each run of the sequence (a block of
text, the end of the text) is the next input, its keys and values stay where they are. The other
way, a new request for each run, computes the ids since the last full cache block again, up to
`block_size` of them for every twelve to fifteen speech tokens; `bench/speech_lm.py` measures both.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from antiphon.engine.checkpoint import Checkpoint
from antiphon.engine.errors import InvalidConfiguration, InvalidRequest, Overloaded, SynthesisFailed
from antiphon.engine.speech_lm.layout import Vocabulary
from antiphon.engine.speech_lm.request import (
    Sampling,
    SpeechLMRequest,
    WarmPrompt,
    WarmPrompts,
    no_prompts,
)
from antiphon.engine.speech_lm.sequences import SequenceBuilder
from antiphon.engine.speech_lm.vllm_engine import VLLMEngine
from antiphon.engine.speech_lm.vllm_export import PROBE_FILE, export, fault_id
from antiphon.engine.speech_lm.vllm_generation import VLLMGeneration
from antiphon.engine.speech_lm.vllm_settings import VLLMSettings, installed_version
from antiphon.engine.voice.voice import LMPrompt

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

PROBE_TOLERANCE: Final = {torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.3}
"""Largest difference of log-probabilities to the torch backend in float32, by dtype."""
RETRY_AFTER_S: Final = 1.0


class VLLMSpeechLM:
    """`SpeechLM` on vLLM. One instance serves all sessions of a process."""

    def __init__(self, model: Path, builder: SequenceBuilder, settings: VLLMSettings) -> None:
        self.builder = builder
        self.model = model
        self._settings = settings
        self._warm: WarmPrompts = no_prompts
        self._epochs: dict[str, int] = {}
        """How often a voice was revoked."""
        self._running: set[VLLMGeneration] = set()
        self._requests = 0
        self.engine = VLLMEngine(model, settings, self._check_and_warm, self._fail_running)

    @classmethod
    def prepare(
        cls, checkpoint: Checkpoint, settings: VLLMSettings, *, compat: bool = False
    ) -> VLLMSpeechLM:
        """Export the checkpoint if needed; `start` then starts vLLM and checks it.

        Args:
            checkpoint: version 2 or 3.
            settings: see there.
            compat: the published implementation's sequences, faults included (golden tests).

        Raises:
            InvalidConfiguration: no vLLM, or a version that is not supported.
            CheckpointError: weights that do not fit the configuration.
        """
        installed_version()
        try:
            model = export(checkpoint, settings.weights, settings.cache)
        except OSError as error:
            raise InvalidConfiguration(
                f"The model cannot be written for vLLM to {settings.cache}: {error.strerror}.",
                field="lm.cache_dir",
            ) from error
        vocabulary = Vocabulary(checkpoint.lm_config)
        builder = SequenceBuilder(vocabulary, checkpoint.tokenizer.end_of_prompt, compat=compat)
        return cls(model, builder, settings)

    async def start(self, prompts: WarmPrompts = no_prompts) -> None:
        """Start vLLM, compare it with the torch backend, and warm prompts. Idempotent.

        Args:
            prompts: see `SpeechLM.start`.

        Raises:
            InvalidConfiguration: vLLM cannot be loaded.
            SynthesisFailed: it does not start, or computes something else than torch does.
        """
        if not self.engine.started:
            self._warm = prompts
            await self.engine.start()

    @property
    def ready(self) -> bool:
        """Whether requests can be taken now; false while a dead engine is being replaced."""
        return self.engine.ready

    @property
    def load_now(self) -> int:
        """Requests that run."""
        return len(self._running)

    def generate(self, request: SpeechLMRequest) -> VLLMGeneration:
        """Start a request; see `SpeechLM.generate`.

        The first `__anext__` raises `Overloaded` when all places are taken, `InvalidRequest` when
        the request cannot be, `SynthesisFailed` while the engine is away.
        """
        return VLLMGeneration(self, request)

    async def close(self) -> None:
        """Stop vLLM; what runs ends with `SynthesisFailed`. Idempotent."""
        await self.engine.close()

    async def _warm_one(self, engine: AsyncLLM, warm: WarmPrompt) -> None:
        ids = shareable_prefix(self.builder, warm.prompt)
        if len(ids) >= self.positions:
            return  # Its requests will be refused by name; the others' engine must start.
        await self.sample_once(engine, ids, cache_salt=self.cache_salt(None, warm.voice))

    def cache_salt(self, tenant: str | None, voice: str | None) -> str | None:
        """Return what isolates cached prefixes; None where everybody shares them."""
        if tenant is None and voice is None:
            return None
        epoch = 0 if voice is None else self._epochs.get(voice, 0)
        return json.dumps([tenant, voice, epoch])

    def revoke(self, voice: str) -> None:
        """Make cached prefixes of a voice unreachable, at once and for good."""
        self._epochs[voice] = self._epochs.get(voice, 0) + 1

    def _fail_running(self) -> None:
        for generation in tuple(self._running):
            generation.fail(SynthesisFailed("The speech LM's engine died while it spoke."))

    async def _check_and_warm(self, engine: AsyncLLM) -> None:
        for entry in json.loads((self.model / PROBE_FILE).read_text()):
            await self.check_probe(engine, entry)
        for warm in tuple(self._warm()):
            await self._warm_one(engine, warm)

    async def check_probe(self, engine: AsyncLLM, entry: dict[str, Any]) -> None:
        """Compare log-probabilities after a fixed prefix with those of the torch backend.

        Raises:
            SynthesisFailed: they differ by more than `PROBE_TOLERANCE`.
        """
        found = await self.sample_once(engine, entry["ids"], logprobs=2 * len(entry["top"]))
        tolerance = PROBE_TOLERANCE[self._settings.weights]
        for token, expected in zip(entry["top"], entry["logp"], strict=True):
            # Near ties may fall out of the returned ones in a coarse dtype: compare what is there.
            difference = abs(found[token] - expected) if token in found else 0.0
            if difference > tolerance or entry["top"][0] not in found:
                raise SynthesisFailed(
                    f"vLLM computes other numbers than the torch backend: log-probability "
                    f"{found.get(token)} instead of {expected} for id {token}."
                )

    async def sample_once(
        self,
        engine: AsyncLLM,
        ids: Sequence[int],
        *,
        logprobs: int | None = None,
        cache_salt: str | None = None,
    ) -> dict[int, float]:
        """Feed ids and sample one; return log-probabilities by id where they were asked for."""
        from vllm import SamplingParams
        from vllm.inputs import TokensPrompt

        prompt = TokensPrompt(prompt_token_ids=list(ids))
        if cache_salt is not None:
            prompt["cache_salt"] = cache_salt
        params = SamplingParams(
            temperature=0.0, max_tokens=1, logprobs=logprobs, detokenize=False, ignore_eos=True
        )
        found: dict[int, float] = {}
        async for output in engine.generate(prompt, params, self.next_id()):
            for entry in output.outputs[0].logprobs or []:
                found.update({token: value.logprob for token, value in entry.items()})
        return found

    # Called by generations.

    def next_id(self) -> str:
        """Return a request id that was not used before."""
        self._requests += 1
        return f"speech-{self._requests}"

    def reserve(self, generation: VLLMGeneration, request: SpeechLMRequest) -> None:
        """Take a place.

        Raises:
            Overloaded: all are taken.
            InvalidRequest: the prompt alone fills a sequence.
        """
        known = len(request.prompt.text_ids) + len(request.prompt.speech_ids) + 2
        if isinstance(request.text, Sequence):
            known += len(request.text)
        if known >= self._settings.max_positions:
            raise InvalidRequest(
                f"Prompt and text take {known} ids, more than one sequence may hold.",
                field="text",
                limit=self._settings.max_positions,
            )
        if len(self._running) >= self._settings.max_sequences:
            raise Overloaded(
                "All places of the speech LM are taken.",
                retry_after_s=RETRY_AFTER_S,
                limit=self._settings.max_sequences,
            )
        self._running.add(generation)

    def release(self, generation: VLLMGeneration) -> None:
        """Give a place back."""
        self._running.discard(generation)

    @property
    def fault_id(self) -> int:
        """Id by which the sampler reports numbers that are not finite."""
        return fault_id(self.builder.vocabulary.config)

    @property
    def stop_ids(self) -> list[int]:
        """Ids that end a run: those that can be sampled and are no speech."""
        ids = self.builder.vocabulary.config.ids
        if self.builder.compat:
            return list(range(ids.first_stop, ids.rows))
        return [ids.eos, ids.fill, self.fault_id]

    @property
    def reports_faults(self) -> bool:
        """Whether that id cannot be sampled otherwise: the published behaviour allows every id."""
        return not self.builder.compat

    def seed_of(self, sampling: Sampling) -> int:
        """Return the seed of a request, drawing one where none was given."""
        return secrets.randbits(63) if sampling.seed is None else sampling.seed

    @property
    def block_size(self) -> int:
        """Ids of one block of the prefix cache."""
        return self._settings.block

    @property
    def positions(self) -> int:
        """Ids that one sequence may hold."""
        return self._settings.max_positions


def shareable_prefix(builder: SequenceBuilder, prompt: LMPrompt) -> list[int]:
    """Return the ids that every bi-stream request of a voice begins with.

    These are start, instruction and the blocks that the prompt's own text fills; what follows
    depends on the caller's text.
    """
    vocabulary = builder.vocabulary
    per_text, per_speech = vocabulary.config.mix_ratio
    instruction, transcript = builder.split(prompt.text_ids)
    ids = [vocabulary.sos, *map(vocabulary.text, instruction)]
    blocks = min(len(transcript) // per_text, len(prompt.speech_ids) // per_speech)
    for block in range(blocks):
        text = transcript[block * per_text : (block + 1) * per_text]
        ids += [vocabulary.text(token) for token in text]
        ids += prompt.speech_ids[block * per_speech : (block + 1) * per_speech]
    return ids
