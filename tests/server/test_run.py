"""A server as a process: it starts, says where it is, and ends well."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import httpx
import pytest
from structlog.testing import capture_logs
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from antiphon.engine.errors import InvalidConfiguration, UnknownVoice
from antiphon.engine.watermark.none import NoWatermark
from antiphon.server.config import load_config
from antiphon.server.engines import EngineSet
from antiphon.server.run import bind
from tests.server.harness import PATH, Client, serving
from tests.server.tone_engine import ToneEngine

PROGRAM = """
from antiphon.server.config import load_config
from antiphon.server.run import serve
serve(load_config(), on_ready=lambda server: print(server.url, flush=True))
"""
KEY = "a-key-for-the-process"
ENVIRONMENT = {
    "ANTIPHON__SERVER__PORT": "0",
    "ANTIPHON__SERVER__API_KEYS": f"[{KEY}]",
    "ANTIPHON__WATERMARK__NAME": "none",
    "OMP_NUM_THREADS": "1",
}
LONG = "One word after the other is spoken here, and nobody needs to hurry. " * 8


@asynccontextmanager
async def process(
    environment: Mapping[str, str],
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    server = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        env={**os.environ, **ENVIRONMENT, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert server.stdout is not None
    try:
        url = (await asyncio.wait_for(server.stdout.readline(), 120)).decode().strip()
        yield server, url
    finally:
        if server.returncode is None:
            server.kill()
        await server.wait()


async def test_sigterm_lets_the_open_turn_end_and_leaves_no_word_in_the_log() -> None:
    async with process({}) as (server, url):
        assert url.startswith("http://127.0.0.1:")
        async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
            assert (await http.get("/readyz")).status_code == 200
            assert (await http.get(f"/v1/voices?api_key={KEY}")).status_code == 200
            assert (await http.get("/v1/voices")).status_code == 401
        ws = url.replace("http", "ws", 1) + PATH + f"?api_key={KEY}"
        async with connect(ws, proxy=None, max_queue=2) as connection:
            client = Client(connection)
            await client.configure(voice="heart")
            await client.send("input.text", text=LONG)
            await client.send("input.done")
            while not isinstance(await client.receive(), bytes):
                pass
            server.send_signal(signal.SIGTERM)
            done = (await client.hear()).done
            assert (done["finish_reason"], done["characters"]) == ("stop", len(LONG.rstrip()))
            with pytest.raises(ConnectionClosed) as closed:
                await client.receive()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1012
        _, log = await asyncio.wait_for(server.communicate(), 20)
        assert server.returncode == 0
        written = log.decode()
        assert "the watermark is switched off" in written
        assert "max_sessions: 32" in written
        assert KEY not in written
        assert "nobody needs to hurry" not in written


async def test_without_keys_it_says_that_only_this_machine_can_connect() -> None:
    with capture_logs() as logs:
        async with serving():
            pass
    warnings = [log["event"] for log in logs if log["log_level"] == "warning"]
    assert warnings == [
        "no API keys are configured: only this machine can connect",
        "the watermark is switched off: speech leaves unmarked",
    ]


def test_a_taken_port_is_refused_before_anything_is_loaded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = load_config(environment={}, overrides={"server.port": port})
        with pytest.raises(InvalidConfiguration) as refused:
            bind(config)
    assert refused.value.field == "server.port"


async def test_a_server_whose_warm_up_fails_does_not_start() -> None:
    class Mute(ToneEngine):
        async def warm_up(self) -> None:
            raise UnknownVoice("It has no voice.")

    with pytest.raises(UnknownVoice):
        async with serving(engine=Mute(NoWatermark())):
            raise AssertionError("it started")


def test_the_default_voice_must_be_known() -> None:
    mark = NoWatermark()
    engines = EngineSet({"tone": ToneEngine(mark)}, model="tone", voice="alto", watermark=mark)
    with pytest.raises(InvalidConfiguration) as refused:
        engines.check_defaults()
    assert (refused.value.field, refused.value.limit) == ("voice", "low, mid, high, top")
