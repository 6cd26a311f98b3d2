"""Speak a text that is still being written: the whole native protocol in one small client.

    python client_demo/say_stream.py "Hello there." --url ws://127.0.0.1:8765 --output hello.wav

Needs a running server (`antiphon serve`) and the package `websockets`; nothing of Antiphon's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
import wave
from collections.abc import AsyncIterator

import websockets

PATH = "/v1/audio/speech/stream"
RATE = 24_000


async def written_slowly(text: str, words_per_second: float) -> AsyncIterator[str]:
    """Stands for an LLM: yields a word at a time."""
    for word in text.split():
        yield word + " "
        await asyncio.sleep(1 / words_per_second)


async def send(socket: websockets.ClientConnection, pieces: AsyncIterator[str]) -> None:
    """Pass each piece on as it comes; the server speaks before the last one is there."""
    async for piece in pieces:
        await socket.send(json.dumps({"type": "input.text", "text": piece}))
    await socket.send(json.dumps({"type": "input.done"}))


async def say(
    url: str, voice: str | None, pieces: AsyncIterator[str]
) -> tuple[bytes, dict[str, object]]:
    """Speak pieces of text; returns 16-bit PCM and the server's report on the turn."""
    audio = bytearray()
    async with websockets.connect(url + PATH, max_size=None) as socket:
        config = {"type": "session.config", "response_format": "pcm", "sample_rate": RATE}
        await socket.send(json.dumps(config | ({"voice": voice} if voice else {})))
        sending = asyncio.create_task(send(socket, pieces))
        started = time.monotonic()
        async for message in socket:
            if isinstance(message, bytes):
                if not audio:
                    print(f"first audio after {1000 * (time.monotonic() - started):.0f} ms")
                audio += message  # a real client plays it here
                continue
            event = json.loads(message)
            if event["type"] == "progress":
                print(event["text"], end=" ", flush=True)
            elif event["type"] == "error":
                sending.cancel()
                raise SystemExit(event["message"])
            elif event["type"] == "session.done":
                await sending
                return bytes(audio[: 2 * event["samples"]]), event
    raise SystemExit("The server closed the connection.")


def main() -> None:
    """Speak the text of the command line into a WAV file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text")
    parser.add_argument("--url", default="ws://127.0.0.1:8765")
    parser.add_argument("--voice")
    parser.add_argument("--rate", type=float, default=20.0, help="words per second")
    parser.add_argument("--output", default="out.wav")
    options = parser.parse_args()
    pieces = written_slowly(options.text, options.rate)
    audio, done = asyncio.run(say(options.url, options.voice, pieces))
    with wave.open(options.output, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(audio)
    print(f"\n{options.output}: {len(audio) / 2 / RATE:.2f} s, real-time factor {done['rtf']}")


if __name__ == "__main__":
    main()
