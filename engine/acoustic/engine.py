"""The acoustic engine as sessions see it: asyncio in front, one worker thread behind.

The event loop never computes and never waits: it puts messages into the worker's inbox and gets
results by `call_soon_threadsafe`. The worker looks into its inbox between two estimator calls, so a
new session joins, and a closed one leaves, at the next call.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Self, TypeVar

import torch

from antiphon.engine.acoustic.core import AcousticCore, Hop, Stream
from antiphon.engine.acoustic.decoder import Decoder
from antiphon.engine.acoustic.interface import AcousticSettings, SpokenHop
from antiphon.engine.acoustic.settings import EngineSettings, validate_session
from antiphon.engine.acoustic.speech import Vocoder
from antiphon.engine.checkpoint.checkpoint import Checkpoint
from antiphon.engine.checkpoint.weights import StateDict
from antiphon.engine.errors import (
    AntiphonError,
    CheckpointError,
    InvalidRequest,
    Overloaded,
    SynthesisFailed,
)
from antiphon.engine.flow.cache import PagePool
from antiphon.engine.flow.flow import Flow
from antiphon.engine.flow.step import CachedFlow
from antiphon.engine.vocoder.hift import HiFT
from antiphon.engine.vocoder.source import SourceNoise
from antiphon.engine.voice.voice import AcousticPrompt

Message = Callable[[], None]
Result = TypeVar("Result")
RETRY_AFTER_S = 2.0


class DecoderEngine:
    """Implements `AcousticEngine` for a decoder of any generation (see interface.py)."""

    def __init__(self, decoder: Decoder, settings: EngineSettings) -> None:
        self.settings = settings
        self._streamer = decoder.streamer
        self._core = AcousticCore(decoder.streamer, decoder.vocoder, settings)
        self._worker = _Worker(self._core, settings.threads)
        self._codes = decoder.codes
        self._open = 0

    @property
    def sample_rate(self) -> int:
        """Samples a second."""
        return self._core.sample_rate

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
                self, await self._worker.call(lambda: self._start(prompt, settings))
            )
        except BaseException:
            self._open -= 1
            raise

    async def warm_voice(self, prompt: AcousticPrompt, settings: AcousticSettings) -> None:
        """Solve a voice's prompt now, so that its first session does not pay for it.

        Raises:
            InvalidConfiguration, Overloaded, SynthesisFailed: as for a session.
        """
        stream = await self.open(prompt, settings)
        try:
            await stream.speak((), final=False)
        finally:
            stream.close()

    def forget_voice(self, key: str) -> None:
        """Drop what is held for the voice of this `AcousticPrompt.key`, at the next call."""
        self._worker.tell(lambda: self._core.forget_voice(key))

    @property
    def open_streams(self) -> int:
        """Turns that are open now."""
        return self._open

    @property
    def cache_bytes(self) -> int:
        """Bytes of keys and values in use, voices and sessions together."""
        return self._core.cache_bytes

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
        if any(not 0 <= token < self._codes for token in tokens):
            raise InvalidRequest(
                "a speech token is outside of the codebook",
                field="tokens",
                limit=f"0..{self._codes - 1}",
            )

    def closed_stream(self, stream: Stream) -> None:
        """Take note that a stream ended."""
        self._open -= 1
        self._worker.drop(stream)

    def submit(
        self, stream: Stream, tokens: Sequence[int], final: bool, deadline: float | None
    ) -> Future[SpokenHop]:
        """Queue a hop; the future is resolved by the worker."""
        return self._worker.submit(stream, tokens, final, deadline)

    def _start(self, prompt: AcousticPrompt, settings: AcousticSettings) -> Stream:
        voice = self._streamer.voice(
            torch.from_numpy(prompt.tokens.astype("int64")),
            torch.from_numpy(prompt.mel.astype("float32")),
            torch.from_numpy(prompt.embedding.astype("float32")),
        )
        return self._core.open(prompt.key, voice, settings, time.monotonic())


class TorchAcousticEngine(DecoderEngine):
    """The acoustic engine of CosyVoice 3 checkpoints."""

    def __init__(self, flow: Flow, hift: HiFT, settings: EngineSettings | None = None) -> None:
        """Take modules with weights loaded; they are put into serving form.

        Raises:
            InvalidConfiguration: settings out of bounds.
        """
        settings = settings or EngineSettings()
        flow.eval().requires_grad_(False)
        config = flow.config.estimator
        pool = PagePool(
            layers=config.depth,
            frames=config.static_chunk_size,
            width=config.heads * config.dim_head,
            budget_bytes=settings.cache_mib << 20,
            device=flow.input_embedding.weight.device,
        )
        vocoder = Vocoder(hift.prepare_for_serving(), SourceNoise(flow.config, hift.config))
        super().__init__(Decoder(CachedFlow(flow, pool), vocoder, flow.config.vocab_size), settings)

    @classmethod
    def load(
        cls,
        checkpoint: Checkpoint,
        settings: EngineSettings | None = None,
        device: torch.device | str = "cpu",
    ) -> Self:
        """Load flow and vocoder of a CosyVoice 3 checkpoint.

        Raises:
            CheckpointError: weights that do not fit the YAML.
            InvalidConfiguration: settings out of bounds.
        """
        flow, hift = Flow(checkpoint.flow_config), HiFT(checkpoint.hift_config)
        parts: tuple[tuple[str, Flow | HiFT, StateDict], ...] = (
            ("flow.pt", flow, checkpoint.flow_state_dict()),
            ("hift.pt", hift, checkpoint.hift_state_dict()),
        )
        for name, module, state in parts:
            try:
                module.load_state_dict(state, strict=True)
            except RuntimeError as error:
                raise CheckpointError(
                    f"{name} does not fit the YAML beside it: {error}", field=name
                ) from error
        return cls(flow.to(device), hift.to(device), settings)


class EngineStream:
    """One turn (see `AcousticStream` in interface.py)."""

    def __init__(self, engine: DecoderEngine, stream: Stream) -> None:
        self._engine = engine
        self._stream: Stream | None = stream
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
        return 0 if self._stream is None else self._stream.nbytes

    def close(self) -> None:
        """Drop the state and any work queued for it. Idempotent; a pending hop is cancelled."""
        stream, self._stream = self._stream, None
        if stream is None:
            return
        if self._pending is not None:
            self._pending.cancel()
        self._engine.closed_stream(stream)


class _Worker:
    """The thread that owns the core."""

    def __init__(self, core: AcousticCore, threads: int) -> None:
        self._core = core
        self._threads = threads
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._waiting: dict[int, tuple[Hop, Future[SpokenHop]]] = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="acoustic", daemon=True)
        self._thread.start()

    def tell(self, message: Message) -> None:
        """Have something done between two calls."""
        self._inbox.put(message)

    async def call(self, work: Callable[[], Result]) -> Result:
        """Have something done between two calls and return its result.

        Raises:
            SynthesisFailed: the worker has ended.
        """
        return await asyncio.wrap_future(self._deferred(work))

    def submit(
        self, stream: Stream, tokens: Sequence[int], final: bool, deadline: float | None
    ) -> Future[SpokenHop]:
        """Queue a hop of a stream."""
        future: Future[SpokenHop] = Future()
        asked_at = time.monotonic()

        def begin() -> None:
            if not future.cancelled():
                hop = self._core.submit(
                    stream, tokens, final=final, deadline=deadline, now=asked_at
                )
                self._waiting[id(hop)] = (hop, future)

        self._post(begin, future)
        return future

    def drop(self, stream: Stream) -> None:
        """Forget a stream's hop."""

        def forget() -> None:
            self._core.cancel(stream)
            gone = [key for key, (hop, _) in self._waiting.items() if hop.stream is stream]
            for key in gone:
                del self._waiting[key]

        self.tell(forget)

    def stop(self) -> None:
        """End the thread after the call it is in; all that waits fails."""
        self._stopping = True
        self.tell(lambda: None)
        self._thread.join()

    def _deferred(self, work: Callable[[], Result]) -> Future[Result]:
        future: Future[Result] = Future()

        def run() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except Exception as error:
                    future.set_exception(error)

        self._post(run, future)
        return future

    def _post(self, message: Message, future: Future[Result]) -> None:
        self.tell(message)
        if self._stopping or not self._thread.is_alive():
            with suppress(Exception):
                future.set_exception(SynthesisFailed("the acoustic engine is closed"))

    def _run(self) -> None:
        torch.set_num_threads(self._threads)
        wait: float | None = None
        try:
            while not self._stopping:
                self._read_inbox(wait)
                finished, wake_at, busy = self._core.step(time.monotonic())
                while finished:
                    # Nothing here may hold on to a hop: its pages are free when its owner lets go.
                    self._resolve(finished.pop())
                if busy:
                    wait = 0.0
                else:
                    wait = None if wake_at is None else max(0.0, wake_at - time.monotonic())
        except Exception as error:
            self._end(SynthesisFailed(f"the acoustic worker died: {type(error).__name__}"))
            raise
        self._end(SynthesisFailed("the acoustic engine is closed"))

    def _read_inbox(self, wait: float | None) -> None:
        """Do what was asked for; wait for the first message if there is nothing to compute."""
        with suppress(queue.Empty):
            self._inbox.get(timeout=wait)() if wait != 0.0 else self._inbox.get_nowait()()
            while True:
                self._inbox.get_nowait()()

    def _resolve(self, hop: Hop) -> None:
        _, future = self._waiting.pop(id(hop), (hop, None))
        if future is None or not future.set_running_or_notify_cancel():
            return
        if isinstance(hop.result, AntiphonError):
            future.set_exception(hop.result)
        elif hop.result is not None:
            future.set_result(hop.result)

    def _end(self, error: SynthesisFailed) -> None:
        self._stopping = True
        self._read_inbox(0.0)
        for _, future in self._waiting.values():
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
        self._waiting.clear()
