"""One turn over the native WebSocket, as an application with an LLM behind it would hold it."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from antiphon.engine.errors import AntiphonError, InvalidRequest

SPEECH_PATH = "/v1/audio/speech/stream"
_LONGEST_MESSAGE = 16 * 1024 * 1024


class ServerUnreachable(AntiphonError):
    """No server answers there, or it broke the connection."""

    code = "server_unreachable"


class ServerRefused(AntiphonError):
    """The server answered with an error; its code is kept."""

    def __init__(self, event: Mapping[str, Any]) -> None:
        super().__init__(
            str(event.get("message", "The server refused.")),
            field=event.get("field"),
            limit=event.get("limit"),
        )
        self.code = str(event.get("code", "refused"))


@dataclass(slots=True)
class Turn:
    """What came back. Times are seconds of a monotonic clock."""

    first_text_at: float = 0.0
    started: dict[str, Any] = field(default_factory=dict)
    done: dict[str, Any] = field(default_factory=dict)
    progress: list[dict[str, Any]] = field(default_factory=list)
    messages: list[bytes] = field(default_factory=list)
    arrivals: list[float] = field(default_factory=list)

    @property
    def first_packet_ms(self) -> float | None:
        """From the first text sent to the first audio received."""
        if not self.arrivals:
            return None
        return 1000 * (self.arrivals[0] - self.first_text_at)


def speech_url(base: str) -> str:
    """The native WebSocket of a server, from any of its addresses.

    Raises:
        InvalidRequest: not an http(s) or ws(s) address; `field` is `url`.
    """
    parts = urlsplit(base if "://" in base else f"http://{base}")
    scheme = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}.get(parts.scheme)
    if scheme is None or not parts.netloc:
        raise InvalidRequest(f"{base!r} is not the address of a server.", field="url")
    path = parts.path.rstrip("/")
    if not path.endswith(SPEECH_PATH):
        path += SPEECH_PATH
    return urlunsplit((scheme, parts.netloc, path, parts.query, ""))


def pieces_of(text: str) -> list[str]:
    """Cut a text into words with the space that follows them, as LLM tokens come."""
    return re.findall(r"\s*\S+\s*", text) or [text]


async def speak(
    url: str,
    text: str,
    config: Mapping[str, Any],
    *,
    words_per_second: float = 20.0,
    api_key: str | None = None,
    on_audio: Callable[[bytes], None] | None = None,
) -> Turn:
    """Send a text in pieces and collect the speech.

    Args:
        url: any address of the server.
        config: fields of `session.config`.
        words_per_second: pace of the pieces; 0 sends all at once.
        on_audio: called with each audio message as it comes.

    Raises:
        ServerUnreachable, ServerRefused, InvalidRequest.
    """
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else None
    turn = Turn()
    try:
        async with connect(
            speech_url(url),
            additional_headers=headers,
            max_size=_LONGEST_MESSAGE,
            compression=None,
            proxy=None,
        ) as socket:
            await _send(socket, type="session.config", **config)
            async with asyncio.TaskGroup() as tasks:
                sender = tasks.create_task(_send_text(socket, text, words_per_second, turn))
                await _receive(socket, turn, on_audio)
                sender.cancel()
    except* (OSError, InvalidHandshake, InvalidURI, TimeoutError) as group:
        reason = _first(group)
        raise ServerUnreachable(f"No server answers at {url}: {reason}.", field="url") from reason
    except* ConnectionClosed as group:
        closed = _first(group)
        raise ServerUnreachable(f"The server closed the connection: {closed}.") from closed
    except* AntiphonError as group:
        raise _first(group) from None
    return turn


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _send(socket: ClientConnection, **message: Any) -> None:
    await socket.send(json.dumps(message, ensure_ascii=False))


async def _send_text(
    socket: ClientConnection, text: str, words_per_second: float, turn: Turn
) -> None:
    start = turn.first_text_at = time.monotonic()
    for i, piece in enumerate(pieces_of(text)):
        if words_per_second > 0:
            # Against the start, so that small delays do not add up.
            await asyncio.sleep(max(0.0, start + i / words_per_second - time.monotonic()))
        await _send(socket, type="input.text", text=piece)
    await _send(socket, type="input.done")


async def _receive(
    socket: ClientConnection, turn: Turn, on_audio: Callable[[bytes], None] | None
) -> None:
    async for message in socket:
        if isinstance(message, bytes):
            audio = message
        else:
            event = json.loads(message)
            match event.get("type"):
                case "session.started":
                    turn.started = event
                case "progress":
                    turn.progress.append(event)
                case "error":
                    raise ServerRefused(event)
                case "session.done":
                    turn.done = event
                    return
            if event.get("type") != "audio.chunk" or not event["audio_b64"]:
                continue
            audio = base64.b64decode(event["audio_b64"])
        turn.arrivals.append(time.monotonic())
        turn.messages.append(audio)
        if on_audio is not None:
            on_audio(audio)
    raise ServerUnreachable("The server closed the connection before the end of the turn.")
