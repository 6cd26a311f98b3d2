"""`POST /v1/audio/speech` as OpenAI's clients speak it: a whole text in, a stream of audio out.

One turn on the same machine as every other protocol; the request is its only context.
"""

from __future__ import annotations

import asyncio
import base64
import uuid
from contextlib import suppress
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from antiphon.engine.errors import AntiphonError, InvalidRequest
from antiphon.server.audio import CONTENT_TYPES, make_encoder
from antiphon.server.conversation import Conversation
from antiphon.server.engines import EngineSet, Wanted
from antiphon.server.errors import MalformedMessage, SlowReader, misfit, outcome
from antiphon.server.handshake import check_caller, error_body, error_headers
from antiphon.server.house import House
from antiphon.server.http import read_body
from antiphon.server.settings import TurnSettings
from antiphon.server.transport import slow_reader
from antiphon.server.turn_events import (
    Audio,
    Configure,
    Done,
    Effect,
    EndText,
    Feed,
    Opened,
    PushText,
    Refused,
)

OPENAI_VOICES = (
    "alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage",
    "shimmer", "verse",
)  # fmt: skip
"""The names that Pipecat lets through; each stands for one of ours, always the same."""
FORMATS = ("mp3", "opus", "aac", "flac", "wav", "pcm")
_RATE = 24_000
"""OpenAI's PCM is 24 kHz without saying so."""


class SpeechBody(msgspec.Struct, frozen=True):
    """The request. Unknown fields are ignored."""

    input: str
    model: str | None = None
    voice: str | dict[str, Any] | None = None
    response_format: str = "mp3"
    stream_format: str = "audio"
    stream: bool = False
    speed: float = 1.0
    instructions: str | None = None
    language: str | None = None
    seed: int | None = None


_decoder = msgspec.json.Decoder(SpeechBody)


class OpenAISpeech:
    """The ASGI application of the endpoint."""

    def __init__(self, house: House) -> None:
        self._house = house

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        outlet = HttpOutlet(send, self._house.config.server.limits.slow_reader_s)
        try:
            request = Request(scope, receive)
            check_caller(self._house, request.headers, scope["query_string"])
            self._house.check_open()
            limits = self._house.config.server.limits
            body = _decode(await read_body(request, limits.message_bytes, limits.request_s))
            settings = self._house.engines.resolve(_wanted(body, self._house.engines))
            outlet.sse = body.stream or body.stream_format == "sse"
            outlet.settings = settings
        except AntiphonError as error:
            self._house.metrics.errors.labels(error.code).inc()
            await outlet.refuse(error)
            return
        except ClientDisconnect:
            return
        await self._speak(body.input, settings, outlet, receive)

    async def _speak(
        self, text: str, settings: TurnSettings, outlet: HttpOutlet, receive: Receive
    ) -> None:
        house = self._house
        conversation = Conversation(
            engines=house.engines,
            resources=house.resources,
            limits=house.config.server.limits,
            outlet=outlet,
        )
        leaving = asyncio.create_task(_gone(receive))
        ended = asyncio.create_task(outlet.ended.wait())
        try:
            with house.conversing(conversation):
                await conversation.submit(Configure("", settings))
                await conversation.submit(PushText("", text))
                if not outlet.ended.is_set():
                    await conversation.submit(EndText(""))
                await asyncio.wait({leaving, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            ended.cancel()
            await conversation.close()
        # An outlet that broke has not sent its last chunk. Uvicorn then closes the connection: the
        # only way left to say that the body is not whole.


class HttpOutlet:
    """Writes one turn as an HTTP response (`Outlet`)."""

    def __init__(self, send: Send, patience_s: float) -> None:
        self._send = send
        self._patience_s = patience_s
        self._started = False
        self.sse = False
        self.settings: TurnSettings | None = None
        self.ended = asyncio.Event()

    async def room(self, turn: int) -> None:
        """The response's own back-pressure is enough."""

    async def writable(self) -> None:
        """`write` waits by itself: with one turn a response there is nobody to hold up."""

    def note(self, effect: Opened | Feed) -> None:
        """Nothing is kept."""

    def stalled(self, error: SlowReader) -> None:
        """Give the response up."""
        self.ended.set()

    async def write(self, effect: Effect) -> None:
        """Write audio, or the end."""
        if self.ended.is_set():
            return
        match effect:
            case Audio(payload=payload):
                await self._body(payload)
            case Refused(error=error) if not self._started:
                await self.refuse(error)
            case Refused(error=error) if self.sse:
                told = msgspec.json.decode(error_body(error), type=dict[str, Any])
                await self._event({"type": "error", **told})
                await self._chunk(b"", more=False)
                self.ended.set()
            case Refused():
                self.ended.set()
            case Done(report):
                silent = not self._started
                await self._start()
                if silent and not self.sse:
                    await self._chunk(_empty_file(report.settings), more=True)
                if self.sse:
                    characters, samples = report.characters, report.samples
                    tokens = round(25 * samples / report.settings.sample_rate)
                    await self._event(
                        {
                            "type": "speech.audio.done",
                            "usage": {
                                "input_tokens": characters,
                                "output_tokens": tokens,
                                "total_tokens": characters + tokens,
                            },
                        }
                    )
                await self._chunk(b"", more=False)
                self.ended.set()

    async def refuse(self, error: AntiphonError) -> None:
        """Answer with the error instead of audio."""
        if error.field == "text":
            error.field = "input"  # what the text is called here
        self._started = True
        headers = [*error_headers(error), (b"x-request-id", uuid.uuid4().hex.encode())]
        status = outcome(error).http_status
        with suppress(OSError):
            await self._send({"type": "http.response.start", "status": status, "headers": headers})
            await self._send({"type": "http.response.body", "body": error_body(error)})
        self.ended.set()

    async def _body(self, payload: bytes) -> None:
        await self._start()
        if self.sse:
            audio = base64.b64encode(payload).decode("ascii")
            await self._event({"type": "speech.audio.delta", "audio": audio})
        else:
            await self._chunk(payload, more=True)

    async def _event(self, event: dict[str, Any]) -> None:
        await self._chunk(b"data: " + msgspec.json.encode(event) + b"\n\n", more=True)

    async def _start(self) -> None:
        if self._started:
            return
        self._started = True
        assert self.settings is not None
        kind = "text/event-stream" if self.sse else CONTENT_TYPES[self.settings.format]
        headers = [
            (b"content-type", kind.encode()),
            (b"cache-control", b"no-store"),
            (b"x-request-id", uuid.uuid4().hex.encode()),
        ]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _chunk(self, body: bytes, *, more: bool) -> None:
        try:
            async with asyncio.timeout(self._patience_s):
                await self._send({"type": "http.response.body", "body": body, "more_body": more})
        except TimeoutError:
            raise slow_reader(self._patience_s) from None


def _empty_file(settings: TurnSettings) -> bytes:
    """A file without samples, so that what comes back for a text without words can be opened."""
    return b"".join(make_encoder(settings.format, settings.sample_rate).finish())


async def _gone(receive: Receive) -> None:
    """Return when the client has left. A closed connection is a cancel."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _decode(body: bytes) -> SpeechBody:
    try:
        decoded = _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise misfit("request", str(error)) from None
    except (msgspec.DecodeError, RecursionError):
        raise MalformedMessage("The body is not JSON.", field="body") from None
    if decoded.response_format not in FORMATS:
        raise InvalidRequest(
            f"response_format is one of {', '.join(FORMATS)}.",
            field="response_format",
            limit=", ".join(FORMATS),
        )
    if decoded.stream_format not in ("audio", "sse"):
        raise InvalidRequest(
            "stream_format is audio or sse.", field="stream_format", limit="audio, sse"
        )
    return decoded


def _wanted(body: SpeechBody, engines: EngineSet) -> Wanted:
    """Map names that are OpenAI's own: `tts-1` is no model of ours, `alloy` no voice of ours."""
    model = body.model if body.model in engines.models else None
    voice = body.voice.get("id") if isinstance(body.voice, dict) else body.voice
    if voice is not None and not isinstance(voice, str):
        raise MalformedMessage("voice is a name, or an object with an id.", field="voice")
    known = [each.name for name, each in engines.voices() if model in (None, name)]
    if voice in OPENAI_VOICES and voice not in known:
        # In order, so that the default voice, which stands first, answers to the first name.
        own = [each.name for each in engines.engine(model or engines.model).voices()]
        voice = own[OPENAI_VOICES.index(voice) % len(own)]
    return Wanted(
        model=model,
        voice=voice,
        language=body.language,
        response_format=body.response_format,
        sample_rate=_RATE,
        speed=body.speed,
        seed=body.seed,
        instructions=body.instructions,
    )
