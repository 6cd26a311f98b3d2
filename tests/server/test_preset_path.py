"""The protocol on the preset engine: real speech, every format, cancel, several callers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import numpy as np
import pytest
import pytest_asyncio

from antiphon.engine.interface import SpeechAudio, SpeechEvent, SpeechRequest
from antiphon.engine.preset.engine import PresetEngine
from antiphon.engine.preset.session import PresetSession
from antiphon.engine.watermark.marked import FloatSamples
from antiphon.server.audio import AudioFormat
from antiphon.server.audio.messages import decode_messages
from tests.server.harness import Running, eventually, serving, talking
from tests.server.preset import preset_server, watermark
from tests.server.test_http import wav
from tests.server.test_limits import raw_client

pytestmark = pytest.mark.asyncio(loop_scope="module")

TEXT = "The train to Vienna leaves at seven thirty, from platform nine. Do not be late!"
LONG = "And then we went on to the next house, where nobody was at home. " * 20


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Running]:
    async with preset_server() as running:
        yield running


async def _direct(server: Running, text: str, seed: int) -> FloatSamples:
    """What the engine itself makes of a text."""
    session = await server.engine.open_session(SpeechRequest("heart", seed=seed))
    await session.push_text(text)
    await session.end_text()
    parts = [
        event.audio.samples async for event in session.events() if isinstance(event, SpeechAudio)
    ]
    return np.concatenate(parts)


async def test_callers_hear_their_own_words_as_the_engine_made_them(server: Running) -> None:
    async def call(i: int) -> None:
        text = f"Caller number {i} asked for {i + 3} blue chairs, please. Thank you, caller {i}!"
        async with talking(server) as client:
            await client.configure(seed=i)
            heard = await client.say(text, pieces=11)
        expected = await _direct(server, text, i)
        assert heard.done["samples"] == len(expected)
        assert heard.done["finish_reason"] == "stop"
        assert heard.done["characters"] == len(text)
        assert np.abs(heard.pcm[: len(expected)] - np.clip(expected, -1, 1)).max() < 2 / 32768

    await asyncio.gather(*(call(i) for i in range(10)))


@pytest.mark.parametrize(
    ("fmt", "rate"),
    [
        ("pcm", 8_000),
        ("pcm", 16_000),
        ("pcm", 22_050),
        ("pcm", 44_100),
        ("pcm", 48_000),
        ("opus_raw", 16_000),
        ("opus_raw", 24_000),
        ("opus_raw", 48_000),
        ("ulaw", 8_000),
        ("alaw", 8_000),
        ("mp3", 24_000),
        ("flac", 24_000),
        ("aac", 8_000),
    ],
)
async def test_every_format_is_as_long_as_the_speech(server: Running, fmt: str, rate: int) -> None:
    async with talking(server) as client:
        await client.configure(seed=5)
        whole = (await client.say(TEXT)).done["samples"]
        await client.configure(seed=5, response_format=fmt, sample_rate=rate)
        heard = await client.say(TEXT)
    assert abs(heard.done["samples"] - round(whole * rate / 24_000)) <= 1
    samples, got = decode_messages(AudioFormat(fmt), rate, heard.messages)
    # AAC fills its frames, of 128 ms at 8 kHz, at both ends.
    padding_s = 0.26 if fmt == "aac" else 0.08
    assert len(samples) / got == pytest.approx(whole / 24_000, abs=padding_s)
    assert np.sqrt(np.mean(samples**2)) > 0.01


@pytest.mark.parametrize("messages_first", [0, 1, 5])
@pytest.mark.parametrize("fmt", ["pcm", "opus_raw"])
async def test_cancel_leaves_nothing_behind(server: Running, fmt: str, messages_first: int) -> None:
    async with talking(server) as client:
        await client.configure(seed=1)
        alone = await client.say("Now something else.")
        await client.configure(seed=1, response_format=fmt)
        await client.send("input.text", text=LONG)
        heard = 0
        while heard < messages_first:
            heard += isinstance(await client.receive(), bytes)
        await client.send("input.cancel")
        done = (await client.hear()).done
        assert done["cancelled"]
        assert done["samples"] < 24_000 * 10
        await client.configure(seed=1)
        again = await client.say("Now something else.")
        assert np.array_equal(again.pcm, alone.pcm)
    sessions = server.house.resources.sessions
    await eventually(lambda: sessions.taken == 0)


class WatchedEngine(PresetEngine):
    """Counts what its sessions hand out."""

    handed_out_s = 0.0

    async def open_session(self, request: SpeechRequest) -> PresetSession:
        session = await super().open_session(request)
        events = session.events

        async def watched() -> AsyncIterator[SpeechEvent]:
            async for event in events():
                if isinstance(event, SpeechAudio):
                    self.handed_out_s += len(event.audio) / event.audio.sample_rate
                yield event

        session.events = watched  # type: ignore[method-assign,assignment]
        return session


@pytest.mark.parametrize("fmt", ["pcm", "opus_raw"])
async def test_a_reader_that_stops_pauses_synthesis_within_three_seconds(fmt: str) -> None:
    engine = WatchedEngine(watermark())
    limits = {"server.limits.slow_reader_s": 1.5}
    async with (
        serving(limits, engine=engine, watermark=watermark(), voice="heart") as server,
        raw_client(server) as client,
    ):
        engine.handed_out_s = 0.0  # The warm-up is over.
        client.send(type="session.config", response_format=fmt)
        client.send(type="input.text", text=LONG)
        sessions = server.house.resources.sessions
        await eventually(lambda: sessions.taken == 1)
        await eventually(lambda: sessions.taken == 0, within_s=10)
        # All that was ever made for it, up to the moment at which it was closed.
        assert 1.5 < engine.handed_out_s < 3.0


async def test_detection_finds_the_mark_in_what_was_sent(server: Running) -> None:
    async with talking(server) as client:
        started = await client.configure(seed=2)
        heard = await client.say(TEXT + " " + TEXT)
    async with httpx.AsyncClient(base_url=server.url, trust_env=False) as http:
        answer = await http.post("/v1/watermark/detect", content=wav(heard.pcm))
        clean = await http.post(
            "/v1/watermark/detect", content=wav(0.1 * np.sin(np.arange(96_000)))
        )
    found = answer.json()
    assert found["watermark"] == started["watermark"] == "perth"
    assert found["marked"]
    assert found["score"] > 0.8
    assert not clean.json()["marked"]


@pytest.mark.parametrize("text", ["...", "🙂🙂", "—", "**"])
async def test_text_that_cannot_be_spoken_is_a_turn_without_audio(
    server: Running, text: str
) -> None:
    async with talking(server) as client:
        await client.configure()
        heard = await client.say(text)
        assert heard.done["finish_reason"] == "empty"
        assert heard.done["samples"] == 0
        assert heard.order == ["session.done"]
