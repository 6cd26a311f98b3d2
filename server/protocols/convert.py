"""`POST /v1/audio/convert`: a recording in, the same words in another voice out, streamed.

A form with the file `audio`. The turn is one like every other: its voice's consent, the watermark,
the limits and the formats are those of speech.
"""

from __future__ import annotations

import asyncio

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from antiphon.engine.audio_file import DecodedAudio, decode_audio
from antiphon.engine.errors import AntiphonError, InvalidRequest
from antiphon.engine.interface import MAX_SOURCE_S
from antiphon.server.admission import Admission
from antiphon.server.engines import Wanted
from antiphon.server.errors import MalformedMessage, misfit
from antiphon.server.forms import is_form, read_form
from antiphon.server.handshake import check_caller
from antiphon.server.house import House
from antiphon.server.http import read_body
from antiphon.server.protocols.http_turn import HttpOutlet, speak_turn
from antiphon.server.protocols.openai import FORMATS
from antiphon.server.settings import TurnSettings

_RATE = 24_000
_HEARD_RATE = 16_000
_READ_AT_ONCE = 4
"""Recordings that arrive or are decoded at the same time; each may be as large as an upload."""


class ConversionForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The texts of the form, besides the file `audio`."""

    voice: str | None = None
    model: str | None = None
    response_format: str = "wav"
    sample_rate: int = _RATE
    speed: float = 1.0


class ConversionRoute:
    """The ASGI application of the endpoint."""

    def __init__(self, house: House) -> None:
        self._house = house
        retry_after_s = house.config.server.limits.retry_after_s
        self._reading = Admission(_READ_AT_ONCE, retry_after_s, "uploads to be converted")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        outlet = HttpOutlet(send, self._house.config.server.limits.slow_reader_s)
        try:
            settings = await self._settings(Request(scope, receive))
        except AntiphonError as error:
            self._house.metrics.errors.labels(error.code).inc()
            await outlet.refuse(error)
            return
        except ClientDisconnect:
            return
        outlet.settings = settings
        await speak_turn(self._house, settings, None, outlet, receive)

    async def _settings(self, request: Request) -> TurnSettings:
        """Read the request and check it, cheapest first."""
        house = self._house
        check_caller(house, request.headers, request.scope["query_string"])
        house.check_open()
        slot = self._reading.acquire()
        try:
            limits = house.config.server.limits
            body = await read_body(request, limits.upload_bytes, limits.request_s)
            form, audio = await _form(request.headers.get("content-type", ""), body)
            source = await asyncio.to_thread(_decoded, audio)
        finally:
            slot.release()
        return house.engines.resolve(
            Wanted(
                model=form.model,
                voice=form.voice,
                response_format=form.response_format,
                sample_rate=form.sample_rate,
                speed=form.speed,
                source=source,
            )
        )


async def _form(content_type: str, body: bytes) -> tuple[ConversionForm, bytes]:
    if not is_form(content_type):
        raise MalformedMessage("The body is no form with a file named audio.", field="body")
    audio, texts = await read_form(content_type, body, "audio")
    fields = {key: value for key, value in texts if value}
    try:
        form = msgspec.convert(fields, ConversionForm, strict=False)
    except msgspec.ValidationError as error:
        raise misfit("form", str(error)) from None
    if form.response_format not in FORMATS:
        raise InvalidRequest(
            f"response_format is one of {', '.join(FORMATS)}.",
            field="response_format",
            limit=", ".join(FORMATS),
        )
    return form, audio


def _decoded(audio: bytes) -> DecodedAudio:
    """Decode a recording, and keep no more of it than the tokenizers hear: 19 MB for 300 s."""
    from antiphon.engine.voice.resample import resample

    decoded = decode_audio(audio, max_seconds=MAX_SOURCE_S, max_bytes=len(audio) or 1)
    if decoded.rate <= _HEARD_RATE:
        return decoded
    return DecodedAudio(resample(decoded.samples, decoded.rate, _HEARD_RATE), _HEARD_RATE)
