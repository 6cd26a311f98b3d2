"""vLLM's own server (`vllm serve`) on an exported directory: it knows the model by our plug-in."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import torch

from antiphon.engine.speech_lm.batch_plan import Row
from antiphon.engine.speech_lm.qwen2 import KVCache, Qwen2SpeechLM
from antiphon.engine.speech_lm.vllm_export import export
from tests.engine.speech_lm.cases import HELLO, checkpoint

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None, reason="vLLM is not installed (extra `vllm`)"
    ),
]
TOKENS = 8
START_S = 300


def greedy_by_torch(ids: list[int]) -> list[int]:
    """What our own network says, one id after the other."""
    opened = checkpoint(3)
    model = Qwen2SpeechLM(opened.lm_config, opened.lm_state_dict(), positions=128)
    cache = KVCache.allocate(opened.lm_config.backbone, 1, 128, torch.float32, "cpu")
    found: list[int] = []
    fed, at = ids, 0
    for _ in range(TOKENS):
        logits = model.step(cache, [Row(0, at, fed)])
        at += len(fed)
        fed = [int(logits[0].argmax())]
        found += fed
    return found


@asynccontextmanager
async def vllm_serve(directory: Path, log: Path) -> AsyncIterator[str]:
    """The program as a user starts it, on a loopback port, until the context ends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(Path(sys.executable).with_name("vllm")), "serve", str(directory)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--skip-tokenizer-init"]
    command += ["--dtype", "float32", "--enforce-eager", "--max-model-len", "128"]
    command += ["--max-num-seqs", "2", "--kv-cache-memory-bytes", str(1 << 24)]
    command += ["--no-async-scheduling"]
    environment = {
        **os.environ,
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_HOST_IP": "127.0.0.1",
    }
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=output, stderr=output, env=environment
        )
        try:
            url = f"http://127.0.0.1:{port}"
            async with httpx.AsyncClient(trust_env=False) as http, asyncio.timeout(START_S):
                while not await answers(http, url):
                    assert process.returncode is None, _end_of(log)
                    await asyncio.sleep(1)
            yield url
        finally:
            if process.returncode is None:
                process.terminate()
            await asyncio.wait_for(process.wait(), 30)


def _end_of(log: Path) -> str:
    return log.read_text()[-3000:]


async def answers(http: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await http.get(f"{url}/health")).status_code == 200
    except httpx.TransportError:
        return False


async def test_the_exported_directory_is_served_by_vllm_alone(tmp_path: Path) -> None:
    opened = checkpoint(3)
    directory = export(opened, torch.float32, tmp_path / "export")
    rows = opened.lm_config.ids.rows
    ids = [opened.lm_config.ids.sos, *(rows + t for t in opened.tokenizer.encode(HELLO))]
    body = {
        "model": str(directory),
        "prompt": ids,
        "max_tokens": TOKENS,
        "temperature": 0.0,
        "ignore_eos": True,
        "detokenize": False,
        "return_token_ids": True,
    }
    async with (
        vllm_serve(directory, tmp_path / "log") as url,
        httpx.AsyncClient(trust_env=False, timeout=60) as http,
    ):
        answer = await http.post(f"{url}/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["choices"][0]["token_ids"] == greedy_by_torch(ids)
