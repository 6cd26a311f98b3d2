"""The Python API: engines without a server, for programs that are not asynchronous."""

from __future__ import annotations

import asyncio
import atexit
import queue
import threading
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, TypeVar, Unpack, overload

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from antiphon.engine.interface import SpeechRequest, SpeechSession, VoiceInfo

Samples = NDArray[np.float32]
Result = TypeVar("Result")
EVENTS_AHEAD = 4
"""Pieces of audio made before the caller has taken the ones before them."""
_TICK_S = 0.1


class SpeechOptions(TypedDict, total=False):
    """How a text is to be spoken; what is left out is the deployment's default."""

    model: str | None
    """Name of a loaded model, where the voice does not say which."""
    speed: float
    """1 is the voice's own pace; engines declare their bounds."""
    seed: int | None
    """Equal seeds give equal speech."""
    language: str | None
    """BCP 47 tag of the text, where it is not the voice's."""
    instructions: str | None
    """How to speak, where the model takes it."""


class Engine:
    """Loaded models with their voices. Usable from any thread; close it, or use it in a `with`.

    Args:
        config: a deployment's YAML file; without one, the same defaults as `antiphon serve`.

    Raises:
        InvalidConfiguration, CheckpointError, WatermarkUnavailable: it cannot be loaded.
    """

    def __init__(self, config: Path | None = None) -> None:
        from antiphon.server.config import load_config
        from antiphon.server.loading import in_this_process, load_engines

        # A script need not guard its entry, so nothing may start it a second time.
        self._engines = load_engines(in_this_process(load_config(config)))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End what runs and free the models. Idempotent."""
        if self._loop.is_closed():
            return
        self._run(self._engines.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def sample_rate(self) -> int:
        """Samples a second of the default model."""
        return self._engines.engine(self._engines.model).capabilities.sample_rate

    def voices(self) -> list[VoiceInfo]:
        """Return the voices of every loaded model."""
        return [voice for _, voice in self._engines.voices()]

    @overload
    def synthesize(
        self,
        text: str | Iterable[str],
        voice: str | None = None,
        *,
        stream: Literal[False] = False,
        **options: Unpack[SpeechOptions],
    ) -> Samples: ...

    @overload
    def synthesize(
        self,
        text: str | Iterable[str],
        voice: str | None = None,
        *,
        stream: Literal[True],
        **options: Unpack[SpeechOptions],
    ) -> Iterator[Samples]: ...

    def synthesize(
        self,
        text: str | Iterable[str],
        voice: str | None = None,
        *,
        stream: bool = False,
        **options: Unpack[SpeechOptions],
    ) -> Samples | Iterator[Samples]:
        """Speak a text, watermarked.

        Args:
            text: a whole text, or an iterable of its pieces, read while they are being spoken.
            voice: name of a voice; the configured default without one.
            stream: whether to return an iterator of arrays instead of one array.
            **options: see `SpeechOptions`.

        Returns:
            Float32 mono samples in [-1, 1], or an iterator of them. Dropping the iterator stops
            the synthesis.

        Raises:
            UnknownVoice, UnsupportedFeature, InvalidRequest, SynthesisFailed.
        """
        from antiphon.server.engines import Wanted

        whole = isinstance(text, str)
        settings = self._engines.resolve(Wanted(voice=voice, whole_text=whole, **options))
        pieces = (text,) if isinstance(text, str) else text
        return _returned(self._arrays(settings.model, settings.request, pieces), stream)

    @overload
    def convert(
        self,
        audio: Path | bytes,
        voice: str | None = None,
        *,
        stream: Literal[False] = False,
        model: str | None = None,
        speed: float = 1.0,
    ) -> Samples: ...

    @overload
    def convert(
        self,
        audio: Path | bytes,
        voice: str | None = None,
        *,
        stream: Literal[True],
        model: str | None = None,
        speed: float = 1.0,
    ) -> Iterator[Samples]: ...

    def convert(
        self,
        audio: Path | bytes,
        voice: str | None = None,
        *,
        stream: bool = False,
        model: str | None = None,
        speed: float = 1.0,
    ) -> Samples | Iterator[Samples]:
        """Say a recording again in another voice, watermarked.

        Args:
            audio: path or content of an audio file of up to 300 s, from 16 kHz.
            voice: name of a voice; the configured default without one.
            stream: whether to return an iterator of arrays instead of one array.
            model: name of a loaded model, where the voice does not say which.
            speed: 1 is the recording's own pace.

        Returns:
            As `synthesize`.

        Raises:
            UnsupportedFeature: the model cannot convert voices.
            UnknownVoice, InvalidRequest, SynthesisFailed.
        """
        from antiphon.engine.audio_file import decode_audio
        from antiphon.engine.interface import MAX_SOURCE_S
        from antiphon.server.engines import Wanted

        source = decode_audio(audio, max_seconds=MAX_SOURCE_S)
        wanted = Wanted(voice=voice, model=model, speed=speed, source=source)
        settings = self._engines.resolve(wanted)
        return _returned(self._arrays(settings.model, settings.request, ()), stream)

    def _arrays(
        self, model: str, request: SpeechRequest, pieces: Iterable[str]
    ) -> Iterator[Samples]:
        arrays: queue.Queue[Samples | BaseException | None] = queue.Queue(EVENTS_AHEAD)
        turn = asyncio.run_coroutine_threadsafe(
            self._turn(model, request, pieces, arrays), self._loop
        )
        try:
            while True:
                item = arrays.get()
                if item is None:
                    return
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            turn.cancel()

    async def _turn(
        self,
        model: str,
        request: SpeechRequest,
        pieces: Iterable[str],
        arrays: queue.Queue[Samples | BaseException | None],
    ) -> None:
        from antiphon.engine.interface import SpeechAudio

        last: BaseException | None = None
        try:
            session = await self._engines.engine(model).open_session(request)
            feeding = asyncio.create_task(_feed(session, pieces))
            try:
                async for event in session.events():
                    if isinstance(event, SpeechAudio):
                        await _put(arrays, event.audio.samples)
                    if feeding.done() and feeding.exception():
                        break
                await feeding
            finally:
                feeding.cancel()
                await session.cancel()
        except Exception as error:
            last = error
        await _put(arrays, last)

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


async def _feed(session: SpeechSession, pieces: Iterable[str]) -> None:
    try:
        async for piece in _without_blocking(pieces):
            await session.push_text(piece)
    finally:
        await session.end_text()


async def _without_blocking(pieces: Iterable[str]) -> AsyncIterator[str]:
    """Iterate in a thread where the pieces may be long in coming."""
    if isinstance(pieces, Sequence):
        for piece in pieces:
            yield piece
        return
    iterator = iter(pieces)
    while (piece := await asyncio.to_thread(next, iterator, None)) is not None:
        yield piece


def _returned(arrays: Iterator[Samples], stream: bool) -> Samples | Iterator[Samples]:
    return arrays if stream else np.concatenate([np.zeros(0, np.float32), *arrays])


async def _put(
    arrays: queue.Queue[Samples | BaseException | None], item: Samples | BaseException | None
) -> None:
    """Wait for room without holding up the loop."""
    while True:
        try:
            arrays.put_nowait(item)
            return
        except queue.Full:
            await asyncio.sleep(_TICK_S)


@cache
def _default_engine() -> Engine:
    engine = Engine()
    atexit.register(engine.close)
    return engine


@overload
def synthesize(
    text: str | Iterable[str],
    voice: str | None = None,
    *,
    stream: Literal[False] = False,
    **options: Unpack[SpeechOptions],
) -> Samples: ...


@overload
def synthesize(
    text: str | Iterable[str],
    voice: str | None = None,
    *,
    stream: Literal[True],
    **options: Unpack[SpeechOptions],
) -> Iterator[Samples]: ...


def synthesize(
    text: str | Iterable[str],
    voice: str | None = None,
    *,
    stream: bool = False,
    **options: Unpack[SpeechOptions],
) -> Samples | Iterator[Samples]:
    """Speak a text with an engine that is loaded at the first call; see `Engine.synthesize`."""
    if stream:
        return _default_engine().synthesize(text, voice, stream=True, **options)
    return _default_engine().synthesize(text, voice, **options)


def convert(
    audio: Path | bytes, voice: str | None = None, *, model: str | None = None, speed: float = 1.0
) -> Samples:
    """Convert with an engine that is loaded at the first call; see `Engine.convert`.

    The built-in defaults have preset voices only, which cannot: use `Engine(config)` for others.
    """
    return _default_engine().convert(audio, voice, model=model, speed=speed)
