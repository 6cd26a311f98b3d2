"""The example client does what it says."""

from __future__ import annotations

import asyncio
import sys
import wave
from pathlib import Path

import numpy as np

from tests.server.harness import serving
from tests.server.tone_engine import speech

CLIENT = Path(__file__).parents[2] / "client_demo" / "say_stream.py"


async def run(*arguments: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(CLIENT),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode, out.decode(), err.decode()


async def test_it_writes_what_it_heard(tmp_path: Path) -> None:
    path = tmp_path / "hello.wav"
    async with serving() as server:
        url = server.url.replace("http", "ws")
        code, out, err = await run(
            "one two three", "--url", url, "--voice", "mid", "--output", str(path)
        )
    assert code == 0, err
    assert "first audio after" in out
    assert "one two three" in out
    with wave.open(str(path)) as file:
        heard = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768
    assert np.abs(heard - speech("mid", "one two three")).max() < 1e-4


async def test_it_says_what_was_wrong(tmp_path: Path) -> None:
    async with serving() as server:
        url = server.url.replace("http", "ws")
        code, _, err = await run("one", "--url", url, "--voice", "nobody")
    assert code == 1
    assert "nobody" in err
