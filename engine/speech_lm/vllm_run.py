"""A sequence's runs as inputs of vLLM: ids, sampling parameters, and what comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Final

from antiphon.engine.errors import SynthesisFailed
from antiphon.engine.interface import FinishReason
from antiphon.engine.speech_lm.layout import End, Sample, Sequence, Wait
from antiphon.engine.speech_lm.request import SpeechLMRequest
from antiphon.engine.speech_lm.text_feed import TextFeed

if TYPE_CHECKING:
    from antiphon.engine.speech_lm.vllm_backend import VLLMSpeechLM

HISTORY: Final = 64
"""Ids that a run is told of what was sampled before it; no window is longer."""


class Run:
    """Turns what the sequence asks for into vLLM inputs, one for each run of samples."""

    def __init__(
        self,
        backend: VLLMSpeechLM,
        request: SpeechLMRequest,
        sequence: Sequence,
        feed: TextFeed,
    ) -> None:
        self._backend = backend
        self._request = request
        self._sequence = sequence
        self._feed = feed
        self._seed = backend.seed_of(request.sampling)
        self._draws = 0
        self._length = 0
        self._unfed: tuple[int, ...] = ()
        self._left = 0
        self._fault = backend.fault_id
        self._stops = backend.stop_ids
        self._next: asyncio.Queue[Sample] = asyncio.Queue(1)
        self.ended: FinishReason | None = None
        """Set where the sequence ended in the midst of a run (a loop of tokens)."""

    async def next_sample(self) -> Sample | End:
        """Return what the sequence samples next, waiting for text where it needs some."""
        while isinstance(step := self._sequence.advance(), Wait):
            self._unfed += step.inputs
            await self._feed.more()
        return step

    def accept(self, sampled: int) -> int | None:
        """Take a sampled id; return it if it is speech to be heard."""
        if sampled == self._fault and self._backend.reports_faults:
            raise SynthesisFailed("The speech LM computed a non-finite value.")
        self._left -= 1
        self._draws += 1
        self._feed.drain()
        token = self._sequence.accept(sampled)
        if self._left > 0 and sampled < self._backend.builder.vocabulary.config.ids.first_stop:
            step = self._sequence.advance()
            if isinstance(step, End):
                self.ended = step.reason
            else:
                assert isinstance(step, Sample)
                assert step.inputs == (sampled,), "a run feeds nothing but what was sampled"
                self._length += 1
        return token

    async def finish_run(self) -> FinishReason | None:
        """Prepare the next run; return why there is none."""
        if self.ended is not None:
            return self.ended
        step = await self.next_sample()
        if isinstance(step, End):
            return step.reason
        if self._length + len(self._unfed) + len(step.inputs) >= self._backend.positions:
            return FinishReason.LENGTH
        await self._next.put(step)
        return None

    async def stream(self, prompt: Any, params: Any) -> AsyncGenerator[Any, None]:
        """Yield the first input and, as runs end, the further ones."""
        from vllm.engine.protocol import StreamingInput

        while True:
            yield StreamingInput(prompt=prompt, sampling_params=params)
            prompt, params = self.begin(await self._next.get())

    def begin(self, step: Sample) -> tuple[Any, Any]:
        """Return prompt and sampling parameters of a run."""
        ids = [*self._unfed, *step.inputs]
        self._unfed = ()
        self._length += len(ids)
        self._left = min(step.longest, max(1, self._backend.positions - self._length))
        return self._prompt(ids), self._params(step)

    def _prompt(self, ids: list[int]) -> Any:
        from vllm.inputs import TokensPrompt

        prompt = TokensPrompt(prompt_token_ids=ids)
        salt = self._backend.cache_salt(self._request.tenant, self._request.voice)
        if salt is not None:
            prompt["cache_salt"] = salt
        return prompt

    def _params(self, step: Sample) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        from antiphon.engine.speech_lm.vllm_sampling import RowSettings

        settings = RowSettings(
            sampling=self._request.sampling,
            constraint=step.constraint,
            run=step.run,
            then=step.constraint if step.then is None else step.then,
            seed=self._seed,
            step=self._draws,
            history=tuple(self._sequence.history[-HISTORY:]),
        )
        return SamplingParams(
            temperature=0.0,
            max_tokens=self._left,
            stop_token_ids=self._stops,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
            extra_args=settings.packed(),
            # Made for this run alone: vLLM need not copy them, twice for each input.
            skip_clone=True,
        )
