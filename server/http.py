"""The HTTP part: health, metrics, voices, watermark detection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match

from antiphon.engine.audio_file import decode_audio
from antiphon.engine.errors import AntiphonError
from antiphon.engine.interface import VoiceInfo
from antiphon.engine.watermark.interface import Detection, Watermark
from antiphon.server.admission import Admission
from antiphon.server.errors import (
    BodyTooLarge,
    DeadlineExceeded,
    UnknownPath,
    WrongMethod,
    outcome,
)
from antiphon.server.handshake import check_caller, error_body, error_headers
from antiphon.server.house import House
from antiphon.server.openapi import document

MAX_DETECT_SECONDS = 600.0
_DETECTIONS_AT_ONCE = 4
"""Detection is heavy and must not take the machine from those who are being spoken to."""
_METHODS = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")

Endpoint = Callable[[Request], Awaitable[Response]]


def json_response(value: Any, status: int = 200) -> Response:
    """A JSON answer."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def error_response(error: AntiphonError) -> Response:
    """The answer that reports an error."""
    headers = {name.decode(): value.decode() for name, value in error_headers(error)}
    return Response(error_body(error), outcome(error).http_status, headers)


async def unknown_path(request: Request, _: Exception) -> Response:
    """The answer where nothing is served."""
    return error_response(
        UnknownPath(f"Nothing is served at {request.url.path[:200]}.", field="path")
    )


async def wrong_method(request: Request, _: Exception) -> Response:
    """The answer to a method that a path does not have."""
    allowed = ", ".join(_methods_of(request))
    refusal = WrongMethod(
        f"{request.url.path[:200]} is not served by {request.method[:20]}.",
        field="method",
        limit=allowed,
    )
    answer = error_response(refusal)
    answer.headers["allow"] = allowed
    return answer


def _methods_of(request: Request) -> list[str]:
    """Every method of a path: it may have a route for each."""
    return [
        method
        for method in _METHODS
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in request.app.routes
        )
    ]


class HttpPart:
    """Endpoints of one server."""

    def __init__(self, house: House) -> None:
        self._house = house
        limits = house.config.server.limits
        self._detections = Admission(_DETECTIONS_AT_ONCE, limits.retry_after_s, "detections")

    def guarded(self, endpoint: Endpoint) -> Endpoint:
        """Check the caller first, and answer typed errors."""

        async def call(request: Request) -> Response:
            try:
                check_caller(self._house, request.headers, request.scope["query_string"])
                return await endpoint(request)
            except AntiphonError as error:
                self._house.metrics.errors.labels(error.code).inc()
                return error_response(error)
            except ClientDisconnect:
                return Response(status_code=408)

        return call

    async def healthz(self, _: Request) -> Response:
        """The process lives."""
        return json_response({"status": "ok"})

    async def readyz(self, _: Request) -> Response:
        """The server takes new work: every engine has spoken and can, and it is not draining."""
        try:
            self._house.check_ready()
        except AntiphonError as error:
            return error_response(error)
        return json_response({"status": "ready"})

    async def metrics(self, _: Request) -> Response:
        """Prometheus text."""
        return Response(
            self._house.metrics.exposition(), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    async def openapi(self, _: Request) -> Response:
        """The OpenAPI document of the HTTP part."""
        return json_response(document())

    async def voices(self, _: Request) -> Response:
        """Who can speak."""
        engines = self._house.engines
        default = engines.default_voice
        listed = [
            {**voice_fields(voice), "model": model, "default": (model, voice.name) == default}
            for model, voice in engines.voices()
        ]
        return json_response({"voices": listed})

    async def models(self, _: Request) -> Response:
        """The loaded models, in OpenAI's form."""
        listed = [
            {"id": name, "object": "model", "owned_by": "local"}
            for name in self._house.engines.models
        ]
        return json_response({"object": "list", "data": listed})

    async def detect(self, request: Request) -> Response:
        """Look for the watermark in the file that is the body."""
        slot = self._detections.acquire()
        try:
            limits = self._house.config.server.limits
            body = await read_body(request, limits.upload_bytes, limits.request_s)
            watermark = self._house.engines.watermark
            found, seconds = await asyncio.to_thread(_detect, watermark, body)
        finally:
            slot.release()
        return json_response(
            {
                "watermark": watermark.name,
                "marked": found.marked,
                "score": round(found.score, 4),
                "spans": [[round(start, 3), round(end, 3)] for start, end in found.spans],
                "seconds": round(seconds, 3),
            }
        )


async def read_body(request: Request, limit: int, patience_s: float = 60.0) -> bytes:
    """Read a request's body, never more than `limit` bytes of it.

    Raises:
        BodyTooLarge: larger than that; `field` is `body`.
        DeadlineExceeded: it took longer than `patience_s`.
    """
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and int(stated) > limit:
        raise _too_large(limit)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(patience_s):
            async for part in request.stream():
                size += len(part)
                if size > limit:
                    raise _too_large(limit)
                parts.append(part)
    except TimeoutError:
        raise DeadlineExceeded(
            f"The body did not arrive within {patience_s:g} seconds.",
            field="request_s",
            limit=patience_s,
        ) from None
    return b"".join(parts)


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"The body is larger than {limit} bytes.", field="body", limit=limit)


def _detect(watermark: Watermark, body: bytes) -> tuple[Detection, float]:
    audio = decode_audio(body, max_seconds=MAX_DETECT_SECONDS, max_bytes=len(body))
    return watermark.detect(audio.samples, audio.rate), len(audio.samples) / audio.rate


def voice_fields(voice: VoiceInfo) -> dict[str, Any]:
    """A voice as it is listed."""
    return {
        "name": voice.name,
        "language": voice.language,
        "description": voice.description,
        "mode": voice.mode.value,
        "first_token_text_tokens": voice.first_token_text_tokens,
    }
