"""The server of the calls benchmark: a process of its own, live or with speech made beforehand."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

from antiphon.engine.interface import (
    Capabilities,
    Engine,
    FinishReason,
    SpeechAudio,
    SpeechEvent,
    SpeechFinished,
    SpeechRequest,
    VoiceInfo,
)
from antiphon.server.config import load_config
from antiphon.server.engines import EngineSet
from antiphon.server.loading import load_engine, load_watermark
from bench.processes import descendants_cpu_s

START_S = 300.0
MOST_CALLS = 1_024
"""Far more than the machine carries, so that nothing but the machine sets the limit."""


@dataclass
class ServerProcess:
    """A server that runs."""

    url: str
    audiosocket_port: int

    def cpu_s(self) -> float:
        """Processor time that it and the processes it started (flow and vocoder) have used."""
        return descendants_cpu_s()


class PremadeSession:
    """Says the same speech, whatever the text (`SpeechSession`)."""

    def __init__(self, speech: Sequence[SpeechAudio]) -> None:
        self._speech = speech
        self._ended = asyncio.Event()
        self._cancelled = False

    async def push_text(self, text: str) -> None:
        """The text starts the speech and has no other effect."""
        self._ended.set()

    async def flush(self) -> None:
        """Nothing is buffered."""

    async def end_text(self) -> None:
        """Start even without text."""
        self._ended.set()

    async def events(self) -> AsyncIterator[SpeechEvent]:
        """The speech."""
        await self._ended.wait()
        samples = 0
        for audio in self._speech:
            if self._cancelled:
                break
            samples += len(audio.audio)
            yield audio
        reason = FinishReason.CANCELLED if self._cancelled else FinishReason.STOP
        yield SpeechFinished(reason, samples)

    async def cancel(self) -> None:
        """Stop."""
        self._cancelled = True
        self._ended.set()


class PremadeEngine:
    """Speech that another engine made and marked before the calls began (`Engine`)."""

    def __init__(self, maker: Engine, speech: Sequence[SpeechAudio]) -> None:
        self._maker = maker
        self._speech = speech

    @property
    def capabilities(self) -> Capabilities:
        """Those of the maker."""
        return self._maker.capabilities

    @property
    def ready(self) -> bool:
        """As the maker."""
        return self._maker.ready

    def voices(self) -> Sequence[VoiceInfo]:
        """Those of the maker."""
        return self._maker.voices()

    def check_voice(self, name: str) -> None:
        """Those of the maker."""
        self._maker.check_voice(name)

    async def warm_up(self) -> None:
        """Nothing to warm."""

    async def open_session(self, request: SpeechRequest) -> PremadeSession:
        """Start a turn."""
        return PremadeSession(self._speech)

    async def close(self) -> None:
        """Free the maker."""
        await self._maker.close()


async def _make(engine: Engine, voice: str, text: str) -> list[SpeechAudio]:
    session = await engine.open_session(SpeechRequest(voice))
    await session.push_text(text)
    await session.end_text()
    speech = [event async for event in session.events() if isinstance(event, SpeechAudio)]
    await session.cancel()
    return speech


async def _serve(ready: Connection, kind: str, text: str) -> None:
    import aioice.ice

    from antiphon.server.run import running, settle

    # Peers are on this machine, and aioice leaves its loopback address out.
    aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]
    config = load_config(
        overrides={
            "server.port": 0,
            "calls.audiosocket_port": 0,
            "calls.max_calls": MOST_CALLS,
            "server.limits.max_sessions": MOST_CALLS,
            # A call by WebSocket and the one of its agent.
            "server.limits.max_connections": 2 * MOST_CALLS,
        }
    )
    watermark = load_watermark(config.watermark)
    engine = load_engine(
        config.engines[0], watermark, max_sessions=config.server.limits.max_sessions
    )
    if kind == "premade":
        voice = config.voice or engine.voices()[0].name
        engine = PremadeEngine(engine, await _make(engine, voice, text))
    engines = EngineSet(
        {config.model: engine}, model=config.model, voice=config.voice, watermark=watermark
    )
    async with running(config, engines) as server:
        settle()
        ready.send((server.url, server.audiosocket_port))
        await asyncio.to_thread(_wait_for_end, ready)


def _wait_for_end(ready: Connection) -> None:
    try:
        ready.recv()
    except EOFError:
        return


def _run(ready: Connection, kind: str, text: str) -> None:
    import uvloop

    uvloop.run(_serve(ready, kind, text))


@contextmanager
def server_process(kind: str, text: str = "") -> Iterator[ServerProcess]:
    """Run a server while the block runs; `kind` is `live` or `premade`."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(theirs, kind, text))
    process.start()
    theirs.close()
    try:
        if not ours.poll(START_S):
            raise TimeoutError("the server did not start")
        url, port = ours.recv()
        yield ServerProcess(url, port)
    finally:
        ours.close()
        process.join(10)
        if process.is_alive():
            process.kill()
