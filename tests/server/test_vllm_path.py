"""The protocol with the speech LM on vLLM: the tiny checkpoint with random weights."""

from __future__ import annotations

import asyncio
import importlib.util
import multiprocessing
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import httpx
import numpy as np
import pytest
import pytest_asyncio

from antiphon.engine.voice.store import VoiceStore
from antiphon.server.config import load_config
from antiphon.server.loading import load_engines
from antiphon.server.run import Server, running
from tests.engine.test_engine_voices import fox
from tests.golden import model_dir
from tests.server.harness import PATH, Client, Heard, connect

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None, reason="vLLM is not installed (extra `vllm`)"
    ),
    pytest.mark.asyncio(loop_scope="module"),
]
TEXT = "Good morning. "
# Repeated, so that the transcript's own text fills the blocks that its speech could.
FOX = fox(transcript="The quick brown fox jumps over the lazy dog. " * 4)
HEN = replace(FOX, name="hen")
PROMPT = 128
"""Ids that all of its turns begin with: four blocks of the cache."""
RESTART_S = 400


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """One server, and so one vLLM, for the module; its voices are there before it starts."""
    folder = tmp_path_factory.mktemp("voices")
    for voice in (FOX, HEN):
        VoiceStore(folder).add(voice)
    config = load_config(
        environment={},
        overrides={
            "server.port": 0,
            "server.limits.max_sessions": 4,
            "watermark.name": "none",
            "text.grammar": "none",
            "voices.folder": folder,
            "model": "tiny",
            "engines": [
                {
                    "kind": "cosyvoice",
                    "name": "tiny",
                    "model_dir": model_dir(3),
                    "lm": {
                        "backend": "vllm",
                        "kv_gib": 0.05,
                        "cache_dir": tmp_path_factory.mktemp("export"),
                    },
                }
            ],
        },
    )
    async with running(config, load_engines(config)) as started:
        yield started


@asynccontextmanager
async def talking(server: Server, voice: str) -> AsyncIterator[Client]:
    url = server.url.replace("http", "ws", 1) + PATH
    async with connect(url, proxy=None) as socket:
        client = Client(socket)
        await client.configure(voice=voice, seed=3)
        yield client


async def say(server: Server, voice: str) -> Heard:
    async with talking(server, voice) as client:
        return await client.say(TEXT, pieces=4)


async def status(server: Server, path: str) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False, timeout=20) as http:
        return await http.get(server.url + path)


def vllm_processes() -> list[int]:
    """Not that of flow and vocoder, which is another child of the server."""
    children = multiprocessing.active_children()
    found = [each.pid for each in children if "EngineCore" in each.name and each.pid is not None]
    assert found
    return found


def cached(server: Server) -> tuple[float, float]:
    """Requests to the speech LM and cached ids of their prompts, as /metrics tells them."""
    registry, label = server.house.metrics.registry, {"model": "tiny"}
    found = [
        registry.get_sample_value(f"antiphon_lm_cached_ids_{what}", label) or 0.0
        for what in ("count", "sum")
    ]
    return found[0], found[1]


async def cached_by(server: Server, voice: str) -> float:
    """Speak, and return how many ids of the turn's one request were cached."""
    count, total = cached(server)
    heard = await say(server, voice)
    assert heard.done["finish_reason"] in ("stop", "length")
    after, sum_after = cached(server)
    assert after == count + 1
    return sum_after - total


async def test_it_speaks_and_is_ready(server: Server) -> None:
    assert (await status(server, "/readyz")).status_code == 200
    one, two = await asyncio.gather(say(server, "tiny_speaker"), say(server, "tiny_speaker"))
    assert one.done["samples"] == two.done["samples"] > 0
    assert one.pcm.any()
    assert np.isfinite(two.pcm).all()
    assert "antiphon_lm_cached_ids_bucket" in (await status(server, "/metrics")).text


async def test_a_voice_is_warm_from_the_start_and_cold_after_it_was_withdrawn(
    server: Server,
) -> None:
    assert await cached_by(server, "hen") >= PROMPT
    folder = server.house.engines.folder
    assert folder is not None
    folder.remove("hen")
    folder.add(HEN)
    assert await cached_by(server, "hen") == 0, "withdrawn and given again"
    assert await cached_by(server, "hen") >= PROMPT


async def test_an_interrupt_of_the_terminal_leaves_vllm_to_the_server(server: Server) -> None:
    """Ctrl-C reaches every process; open turns may still end."""
    for process in vllm_processes():
        os.kill(process, signal.SIGINT)
    assert (await say(server, "tiny_speaker")).done["finish_reason"] in ("stop", "length")
    assert (await status(server, "/readyz")).status_code == 200


async def test_a_dead_engine_is_an_error_event_and_comes_back(server: Server) -> None:
    """Last of this server: kill -9 while it speaks, on a connection that goes on."""
    before = await say(server, "tiny_speaker")
    async with talking(server, "tiny_speaker") as client:
        await client.send("input.text", text=TEXT * 40)
        while not isinstance(await client.receive(), bytes):
            pass
        for process in vllm_processes():
            os.kill(process, signal.SIGKILL)
        message: dict[str, object] | bytes = b""
        while isinstance(message, bytes) or message["type"] != "error":
            message = await client.receive()
        assert message["code"] == "synthesis_failed"
        while isinstance(message, bytes) or message["type"] != "session.done":
            message = await client.receive()
        assert message["finish_reason"] == "error"

        away = await status(server, "/readyz")
        assert away.status_code == 503
        assert away.json()["error"]["code"] == "not_ready"
        assert "tiny" in away.json()["error"]["message"]
        assert (await status(server, "/healthz")).status_code == 200
        # What was left of the failed turn's text is swallowed up to its end.
        await client.send("input.done")
        await client.send("input.text", text=TEXT)
        await client.send("input.done")
        assert (await client.hear()).of("error")[0]["code"] == "not_ready"

        async with asyncio.timeout(RESTART_S):
            while (await status(server, "/readyz")).status_code != 200:  # noqa: ASYNC110
                await asyncio.sleep(1)
        # On the connection that saw it die.
        again = await client.say(TEXT, pieces=4)
        for voice in ("fox", "hen"):
            # Hen was withdrawn and given again, which the start of the first engine did not know.
            assert await cached_by(server, voice) >= PROMPT, "warmed again with the new engine"
    assert again.done["samples"] == before.done["samples"]
