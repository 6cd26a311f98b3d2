"""The acoustic engine as sessions see it: asyncio in front, one worker behind.

The event loop never computes and never waits: it puts messages into the worker's inbox and gets
results by `call_soon_threadsafe`. The worker, a thread here or in another process, looks into its
inbox between two estimator calls, so a new session joins, and a closed one leaves, at the next
call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from antiphon.engine.acoustic.cached_decoder import cached_decoder
from antiphon.engine.acoustic.interface import AcousticSettings, SpokenHop
from antiphon.engine.acoustic.settings import EngineSettings, validate_session
from antiphon.engine.acoustic.worker import AcousticWorker, ThreadWorker
from antiphon.engine.errors import (
    InvalidRequest,
    Overloaded,
    SynthesisFailed,
)
from antiphon.engine.flow.flow import Flow
from antiphon.engine.vocoder.hift import HiFT
from antiphon.engine.voice.voice import AcousticPrompt

RETRY_AFTER_S = 2.0


class DecoderEngine:
    """Implements `AcousticEngine` for a decoder of any generation (see interface.py)."""

    def __init__(self, worker: AcousticWorker[Any], settings: EngineSettings) -> None:
        self.settings = settings
        self._worker = worker
        self._open = 0

    @property
    def sample_rate(self) -> int:
        """Samples a second."""
        return self._worker.sample_rate

    @property
    def ready(self) -> bool:
        """Whether turns can be spoken now; false while the worker's process is started again."""
        return self._worker.ready

    async def open(self, prompt: AcousticPrompt, settings: AcousticSettings) -> EngineStream:
        """Start a turn in a voice; the voice's prompt is solved meanwhile if it is not yet known.

        Raises:
            InvalidConfiguration: settings out of range, naming the field.
            Overloaded: as many turns are open as the settings allow.
            SynthesisFailed: the engine is closed.
        """
        validate_session(settings)
        if self._open >= self.settings.max_streams:
            raise Overloaded(
                f"{self._open} turns are open, as many as this engine allows",
                retry_after_s=RETRY_AFTER_S,
                limit=self.settings.max_streams,
            )
        self._open += 1
        try:
            return EngineStream(
                self, await asyncio.wrap_future(self._worker.open(prompt, settings))
            )
        except BaseException:
            self._open -= 1
            raise

    async def warm_voice(self, prompt: AcousticPrompt, settings: AcousticSettings) -> None:
        """Solve a voice's prompt now, so that its first session does not pay for it.

        It is solved again whenever the worker's process is started again, before that is ready.

        Raises:
            InvalidConfiguration, Overloaded, SynthesisFailed: as for a session.
        """
        self._worker.keep_warm(prompt, settings)
        stream = await self.open(prompt, settings)
        try:
            await stream.speak((), final=False)
        finally:
            stream.close()

    def forget_voice(self, key: str) -> None:
        """Drop what is held for the voice of this `AcousticPrompt.key`, at the next call."""
        self._worker.forget_voice(key)

    @property
    def open_streams(self) -> int:
        """Turns that are open now."""
        return self._open

    @property
    def cache_bytes(self) -> int:
        """Bytes of keys and values in use, voices and sessions together."""
        return self._worker.cache_bytes

    async def close(self) -> None:
        """Cancel what runs and end the worker."""
        await asyncio.to_thread(self._worker.stop)

    def check_hop(self, tokens: Sequence[int]) -> None:
        """Refuse tokens that no checkpoint of this size can mean.

        Raises:
            InvalidRequest: too many tokens, or one outside of the codebook.
        """
        limit = self.settings.max_waiting_tokens
        if len(tokens) > limit:
            raise InvalidRequest(
                f"a hop of {len(tokens)} tokens is over the bound", field="tokens", limit=limit
            )
        codes = self._worker.codes
        if any(not 0 <= token < codes for token in tokens):
            raise InvalidRequest(
                "a speech token is outside of the codebook",
                field="tokens",
                limit=f"0..{codes - 1}",
            )

    def closed_stream(self, stream: object) -> None:
        """Take note that a stream ended."""
        self._open -= 1
        self._worker.drop(stream)

    def submit(
        self, stream: object, tokens: Sequence[int], final: bool, deadline: float | None
    ) -> Future[SpokenHop]:
        """Queue a hop; the future is resolved by the worker."""
        return self._worker.submit(stream, tokens, final, deadline)

    def nbytes(self, stream: object) -> int:
        """Bytes that a stream alone holds."""
        return self._worker.nbytes(stream)


class TorchAcousticEngine(DecoderEngine):
    """The acoustic engine of CosyVoice 3 checkpoints."""

    def __init__(self, flow: Flow, hift: HiFT, settings: EngineSettings | None = None) -> None:
        """Take modules with weights loaded; they are put into serving form.

        Raises:
            InvalidConfiguration: settings out of bounds.
        """
        settings = settings or EngineSettings()
        super().__init__(ThreadWorker(cached_decoder(flow, hift, settings), settings), settings)


class EngineStream:
    """One turn (see `AcousticStream` in interface.py)."""

    def __init__(self, engine: DecoderEngine, stream: object) -> None:
        self._engine = engine
        self._stream: object | None = stream
        self._pending: Future[SpokenHop] | None = None

    async def speak(
        self, tokens: Sequence[int], *, final: bool, deadline: float | None = None
    ) -> SpokenHop:
        """Append tokens and return the samples they make final.

        Raises:
            SynthesisFailed: non-finite mel or samples, or the stream is closed.
            Overloaded: the cache has no room; the stream cannot go on.
            InvalidRequest: tokens outside of the codebook or over the bound of a hop.
        """
        if self._stream is None:
            raise SynthesisFailed("the acoustic stream is closed")
        assert self._pending is None, "one hop of a stream at a time"
        self._engine.check_hop(tokens)
        self._pending = self._engine.submit(self._stream, tuple(tokens), final, deadline)
        try:
            return await asyncio.wrap_future(self._pending)
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            self._pending = None

    @property
    def nbytes(self) -> int:
        """Bytes that this turn alone holds."""
        return 0 if self._stream is None else self._engine.nbytes(self._stream)

    def close(self) -> None:
        """Drop the state and any work queued for it. Idempotent; a pending hop is cancelled."""
        stream, self._stream = self._stream, None
        if stream is None:
            return
        if self._pending is not None:
            self._pending.cancel()
        self._engine.closed_stream(stream)
