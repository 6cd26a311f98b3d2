"""Runs a server: load, listen, warm up, serve, drain."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from types import FrameType

import structlog
import uvicorn
import uvloop
from starlette.applications import Starlette

from antiphon.engine.errors import InvalidConfiguration
from antiphon.server.app import create_app
from antiphon.server.calls.registry import Calls
from antiphon.server.config import Config, is_loopback
from antiphon.server.engines import EngineSet
from antiphon.server.house import House
from antiphon.server.logs import set_up_logs
from antiphon.server.phone.audiosocket import audiosocket_door
from antiphon.server.transport import BufferSizes, metered_websocket

_BACKLOG = 512
_KEEP_ALIVE_S = 20

_log = structlog.get_logger("antiphon.server")

OnReady = Callable[["Server"], None]


def serve(config: Config, *, on_ready: OnReady | None = None) -> None:
    """Serve until SIGINT or SIGTERM; open turns may end first. A second signal stops at once.

    `on_ready` is called with the server once every engine has spoken.

    Raises:
        AntiphonError: the configuration cannot work, or something it names cannot be loaded.
    """
    from antiphon.server.loading import load_engines

    set_up_logs(config.log)
    for line in config.describe().splitlines():
        _log.info("configuration", line=line)
    listener = bind(config)
    try:
        engines = load_engines(config)
        uvloop.run(_serve(config, engines, listener, on_ready))
    finally:
        listener.close()


async def _serve(
    config: Config, engines: EngineSet, listener: socket.socket, on_ready: OnReady | None
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    again = asyncio.Event()

    def on_signal() -> None:
        if stop.is_set():
            again.set()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    async with running(config, engines, listener=listener) as server:
        settle()
        if on_ready is not None and not stop.is_set():
            on_ready(server)
        await stop.wait()
        _log.info("draining", limit_s=config.server.limits.drain_s)
        draining = asyncio.create_task(server.house.drain())
        giving_up = asyncio.create_task(again.wait())
        await asyncio.wait({draining, giving_up}, return_when=asyncio.FIRST_COMPLETED)
        draining.cancel()
        giving_up.cancel()


def settle() -> None:
    """Keep what was loaded out of the garbage collector's sight, for processes that only serve.

    A full collection walks every object: 0.1 to 0.3 s with models, phone dictionaries and libraries
    in memory, in which no call gets a frame. Nothing that lives now is garbage later.
    """
    gc.collect()
    gc.freeze()


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs."""

    url: str
    house: House
    calls: Calls
    audiosocket_port: int | None


@contextlib.asynccontextmanager
async def running(
    config: Config, engines: EngineSet, *, listener: socket.socket | None = None
) -> AsyncIterator[Server]:
    """Run a server in this event loop; it takes work when the context is entered.

    Closes the engines at the end. Open turns are cut off then; `House.drain` comes first.
    """
    house = House(config, engines)
    own = listener is None
    listener = bind(config) if listener is None else listener
    url = f"http://{_address(listener)}"
    calls = Calls(house)
    server = _Uvicorn(_uvicorn_config(config, create_app(house, calls)))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await server.listening.wait()
        _announce(config, engines, url)
        await engines.warm_up()
        house.warm = True
        _log.info("ready", url=url)
        async with audiosocket_door(calls) as audiosocket_port:
            yield Server(url, house, calls, audiosocket_port)
    finally:
        house.draining = True
        await calls.close()
        server.should_exit = True
        await asyncio.gather(task, return_exceptions=True)
        await engines.close()
        if own:
            listener.close()
        _log.info("stopped")


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signal handlers: draining is ours."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say when connections are taken."""
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Never called."""
        raise AssertionError("signals are handled outside of uvicorn")


def _uvicorn_config(config: Config, app: Starlette) -> uvicorn.Config:
    limits = config.server.limits
    return uvicorn.Config(
        app,
        ws=metered_websocket(BufferSizes(limits.write_buffer_bytes)),
        ws_max_size=limits.message_bytes,
        # Speech does not shrink, and compressing it costs a thread's worth of CPU.
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        # The access log holds URLs, and URLs hold keys.
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=2,
        backlog=_BACKLOG,
    )


def bind(config: Config) -> socket.socket:
    """Listen where the configuration says.

    Raises:
        InvalidConfiguration: the address is not ours or is taken.
    """
    host, port = config.server.host, config.server.port
    try:
        info = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = info[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InvalidConfiguration(
            f"The host {host} cannot be resolved.", field="server.host"
        ) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise InvalidConfiguration(
            f"The server cannot listen on {host}, port {port}: {error.strerror}.",
            field="server.port",
        ) from error
    listener.setblocking(False)
    return listener


def _announce(config: Config, engines: EngineSet, url: str) -> None:
    if not config.server.api_keys:
        assert is_loopback(config.server.host)
        _log.warning(
            "no API keys are configured: only this machine can connect", host=config.server.host
        )
    if engines.watermark.name == "none":
        _log.warning("the watermark is switched off: speech leaves unmarked")
    _log.info(
        "loading",
        url=url,
        configuration=config.digest,
        models=list(engines.models),
        watermark=engines.watermark.name,
    )


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
