"""A real Asterisk at the doors, where one with these modules is on the machine.

`ANTIPHON_ASTERISK` names the program if it is not on the path. Nothing leaves the machine: a local
channel that plays a tone and presses a key is connected to us, and what it hears is recorded.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import wave
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.server.harness import PATIENCE_S, Running, serving
from tests.server.phone.peer import Agent, agent_of, loudest_hz, wait_for_calls
from tests.server.tone_engine import word_tone

PROGRAM = os.environ.get("ANTIPHON_ASTERISK") or shutil.which("asterisk")
NEEDED = ("app_audiosocket", "chan_audiosocket", "chan_websocket", "res_websocket_client")
MILLIWATT_HZ = 1004
EXTENSIONS = """
[tts]
exten => caller,1,Answer()
 same => n,MixMonitor({there}/both.wav,r({there}/heard.wav))
 same => n,Wait(1.5)
 same => n,SendDTMF(5,,100)
 same => n,Milliwatt()
exten => application,1,Answer()
 same => n,AudioSocket(${{UUID()}},127.0.0.1:{audiosocket})
 same => n,Hangup()
exten => channel,1,Answer()
 same => n,Dial(AudioSocket/127.0.0.1:{audiosocket}/${{UUID()}}/c(slin16))
exten => websocket,1,Answer()
 same => n,Dial(WebSocket/antiphon/c(slin16)f(json)n)
"""
WEBSOCKET_CLIENT = """
[antiphon]
type = websocket_client
connection_type = per_call_config
uri = {websocket}/v1/asterisk
protocols = media
tls_enabled = no
"""


def modules() -> Path | None:
    """Where its modules lie, if all that are needed do."""
    if PROGRAM is None:
        return None
    prefix = Path(PROGRAM).resolve().parent.parent
    for found in prefix.glob("lib/**/asterisk/modules"):
        if all((found / f"{name}.so").exists() for name in NEEDED):
            return found
    return None


MODULES = modules()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        MODULES is None, reason="there is no Asterisk with AudioSocket and chan_websocket here"
    ),
]


@dataclass
class Exchange:
    """A running Asterisk."""

    there: Path

    async def command(self, line: str) -> int:
        assert PROGRAM is not None
        process = await asyncio.create_subprocess_exec(
            PROGRAM,
            "-C",
            str(self.there / "asterisk.conf"),
            "-rx",
            line,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        return await process.wait()

    async def call(self, extension: str) -> None:
        """Let the local caller call us."""
        line = f"channel originate Local/caller@tts extension {extension}@tts"
        assert await self.command(line) == 0

    def heard(self) -> np.ndarray:
        """What the local caller heard, at 8 kHz; whole once Asterisk has ended."""
        with wave.open(str(self.there / "heard.wav")) as file:
            assert file.getframerate() == 8000
            return np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768


def configure(there: Path, server: Running) -> None:
    folders = "\n".join(
        f"{name} => {there}"
        for name in (
            "astetcdir", "astvarlibdir", "astdbdir", "astkeydir", "astdatadir", "astagidir",
            "astspooldir", "astrundir", "astlogdir",
        )
    )  # fmt: skip
    files = {
        # Silence is sent too while the caller waits: a line is never without frames.
        "asterisk.conf": f"[directories]\nastmoddir => {MODULES}\n{folders}\n"
        "[options]\ntransmit_silence = yes\n",
        "modules.conf": "[modules]\nautoload = yes\n",
        "logger.conf": "[general]\n[logfiles]\nfull = notice,warning,error,verbose\n",
        "extensions.conf": EXTENSIONS.format(there=there, audiosocket=server.audiosocket_port),
        "websocket_client.conf": WEBSOCKET_CLIENT.format(
            websocket=server.url.replace("http", "ws", 1)
        ),
    }
    for name, text in files.items():
        (there / name).write_text(text)


@asynccontextmanager
async def exchange(server: Running, there: Path) -> AsyncIterator[Exchange]:
    assert PROGRAM is not None
    configure(there, server)
    process = await asyncio.create_subprocess_exec(
        PROGRAM, "-f", "-C", str(there / "asterisk.conf"), stdout=asyncio.subprocess.DEVNULL
    )
    found = Exchange(there)
    try:
        async with asyncio.timeout(PATIENCE_S):
            while await found.command("core waitfullybooted"):  # noqa: ASYNC110 - its state
                await asyncio.sleep(0.1)
        yield found
        await found.command("core stop now")
        await asyncio.wait_for(process.wait(), PATIENCE_S)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def speak_and_interrupt(agent: Agent) -> None:
    """A key comes in, a turn is heard to its end, another is cut short."""
    assert (await agent.until("call.dtmf"))["digit"] == "5"
    async with asyncio.timeout(PATIENCE_S):
        while (await agent.until("caller.level"))["dbfs"] < -30:
            pass  # the silence before the tone
    await agent.send("input.text", text="one two three ")
    await agent.send("input.done")
    await agent.send("call.audio", enabled=True)
    assert (await agent.until("session.done"))["finish_reason"] == "stop"
    await asyncio.sleep(0.6)  # Asterisk plays what it has
    await agent.send("input.text", text="four " * 20)
    await agent.send("input.done")
    await agent.until("audio.played")
    await agent.send("input.cancel")
    assert (await agent.until("session.done"))["cancelled"]
    await asyncio.sleep(1.0)
    await agent.send("call.hang_up")
    await agent.until("call.ended")
    said = np.frombuffer(b"".join(agent.audio), "<i2") / 32768
    assert loudest_hz(said[-16_000:], 16_000) == pytest.approx(MILLIWATT_HZ, abs=5)


def check(heard: np.ndarray) -> None:
    """Three words at full length and pitch, a pause, a part of the next turn, silence."""
    loud = np.abs(heard) > 0.02
    spoken = np.flatnonzero(loud)
    begin = spoken[0]
    for i, word in enumerate(("one", "two", "three")):
        middle = heard[
            begin + round((0.2 * i + 0.05) * 8000) : begin + round((0.2 * i + 0.15) * 8000)
        ]
        assert loudest_hz(middle, 8000) == pytest.approx(word_tone("low", word), abs=12)
    assert not loud[begin + round(0.66 * 8000) : begin + round(0.9 * 8000)].any()
    # Of the second turn's four seconds little was heard before it was cut short.
    assert (spoken[-1] - begin) / 8000 < 3.5


@pytest.mark.parametrize(
    ("extension", "peer", "rate"),
    [
        ("application", "audiosocket", 8000),
        ("channel", "audiosocket", 16000),
        ("websocket", "asterisk", 16000),
    ],
)
async def test_it_calls_us(extension: str, peer: str, rate: int, tmp_path: Path) -> None:
    async with (
        serving({"calls.audiosocket_port": 0}) as server,
        exchange(server, tmp_path) as asterisk,
    ):
        await asterisk.call(extension)
        (call,) = await wait_for_calls(server, 1)
        assert (call["peer"], call["sample_rate"]) == (peer, rate)
        async with agent_of(server, call["id"]) as agent:
            await speak_and_interrupt(agent)
        await wait_for_calls(server, 0)
    check(asterisk.heard())
