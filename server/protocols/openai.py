"""`POST /v1/audio/speech` as OpenAI's clients speak it: a whole text in, a stream of audio out.

One turn on the same machine as every other protocol; the request is its only context.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from antiphon.engine.errors import AntiphonError, InvalidRequest
from antiphon.server.engines import EngineSet, Wanted
from antiphon.server.errors import MalformedMessage, misfit
from antiphon.server.handshake import check_caller, owner_of
from antiphon.server.house import House
from antiphon.server.http import read_body
from antiphon.server.protocols.http_turn import HttpOutlet, speak_turn

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
    sample_rate: int | None = None
    """Hz, an addition to OpenAI's fields; None for the rate that OpenAI's PCM has."""


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
            tenant = owner_of(self._house, request.headers, scope["query_string"]) or None
            asked = replace(_wanted(body, self._house.engines), tenant=tenant)
            settings = self._house.engines.resolve(asked)
            outlet.sse = body.stream or body.stream_format == "sse"
            outlet.settings = settings
        except AntiphonError as error:
            self._house.metrics.errors.labels(error.code).inc()
            await outlet.refuse(error)
            return
        except ClientDisconnect:
            return
        await speak_turn(self._house, settings, body.input, outlet, receive)


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
        sample_rate=_RATE if body.sample_rate is None else body.sample_rate,
        speed=body.speed,
        seed=body.seed,
        instructions=body.instructions,
        whole_text=True,
    )
