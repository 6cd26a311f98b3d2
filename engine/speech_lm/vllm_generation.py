"""One request of the vLLM backend, as its session sees it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING, Any, Final

from antiphon.engine.errors import AntiphonError, SynthesisFailed
from antiphon.engine.interface import FinishReason
from antiphon.engine.speech_lm.layout import End
from antiphon.engine.speech_lm.request import SpeechLMRequest
from antiphon.engine.speech_lm.text_feed import TextFeed
from antiphon.engine.speech_lm.vllm_run import Run

if TYPE_CHECKING:
    from antiphon.engine.speech_lm.vllm_backend import VLLMSpeechLM

Outcome = int | FinishReason | AntiphonError
MAX_AHEAD_TOKENS: Final = 250
"""Tokens that nobody has taken: vLLM is not read on beyond them."""


class VLLMGeneration:
    """`Generation` of the vLLM backend. Iterated by one task; any task may close it."""

    def __init__(self, backend: VLLMSpeechLM, request: SpeechLMRequest) -> None:
        self._backend = backend
        self._request = request
        self._outcomes: asyncio.Queue[Outcome] = asyncio.Queue(MAX_AHEAD_TOKENS)
        self._speaker: asyncio.Task[None] | None = None
        self._reason: FinishReason | None = None
        self._failure: AntiphonError | None = None
        self._over = False
        self.cached_ids = 0
        """Ids of the first input whose keys and values were in the prefix cache."""

    @property
    def finish_reason(self) -> FinishReason | None:
        """See `Generation`."""
        return self._reason

    def __aiter__(self) -> AsyncIterator[int]:
        return self

    async def __anext__(self) -> int:
        if self._over:
            raise StopAsyncIteration
        if self._speaker is None:
            self._speaker = asyncio.create_task(self._speak())
        outcome = await self._outcomes.get()
        if self._over:
            raise StopAsyncIteration
        if isinstance(outcome, int):
            return outcome
        self._over = True
        if isinstance(outcome, AntiphonError):
            raise outcome
        self._reason = outcome
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Cancel: vLLM aborts the request before its next step. Idempotent."""
        if self._over:
            return
        self._over = True
        self._reason = FinishReason.CANCELLED
        if self._speaker is not None:
            self._speaker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._speaker
        if self._outcomes.empty():
            self._outcomes.put_nowait(FinishReason.CANCELLED)

    def fail(self, error: AntiphonError) -> None:
        """End with an error, because the engine is gone: it may never say so itself."""
        if self._speaker is not None and not self._speaker.done():
            self._failure = error
            self._speaker.cancel()

    async def _speak(self) -> None:
        """Run the request and put everything that comes of it into the queue."""
        try:
            outcome: Outcome = await self._request_of_vllm()
        except asyncio.CancelledError:
            if self._failure is None:
                raise
            outcome = self._failure
        except AntiphonError as error:
            outcome = error
        except Exception as error:  # vLLM raises many things, an engine's death among them.
            outcome = SynthesisFailed(f"vLLM failed ({type(error).__name__}).")
        await self._outcomes.put(outcome)

    async def _request_of_vllm(self) -> FinishReason:
        backend, request = self._backend, self._request
        sequence = backend.builder.build(request)
        engine = backend.engine.get()
        backend.reserve(self, request)
        feed = TextFeed(sequence, request.text, backend.builder.check_text)
        run = Run(backend, request, sequence, feed)
        try:
            first = await run.next_sample()
            if isinstance(first, End):
                return first.reason
            prompt, params = run.begin(first)
            inputs = prompt if feed.whole else run.stream(prompt, params)
            outputs = engine.generate(inputs, params, backend.next_id())
            async with contextlib.aclosing(outputs):
                return await self._take(outputs, run)
        finally:
            await feed.close()
            backend.release(self)

    async def _take(self, outputs: AsyncGenerator[Any, None], run: Run) -> FinishReason:
        async for output in outputs:
            self.cached_ids = max(self.cached_ids, output.num_cached_tokens or 0)
            for sampled in output.outputs[0].token_ids:
                token = run.accept(sampled)
                if token is not None:
                    await self._outcomes.put(token)
            if output.outputs[0].finish_reason is not None:
                reason = await run.finish_run()
                if reason is not None:
                    return reason
            elif run.ended is not None:
                return run.ended
        raise SynthesisFailed("vLLM ended a request before its time.")
