"""The application: every route of the server, on one port."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.routing import Route, WebSocketRoute

from antiphon.server.house import House
from antiphon.server.http import HttpPart
from antiphon.server.protocols.native import NativeProtocol
from antiphon.server.protocols.openai import OpenAISpeech

STREAM_PATH = "/v1/audio/speech/stream"


def create_app(house: House) -> Starlette:
    """Assemble the routes of a server."""
    http = HttpPart(house)
    return Starlette(
        routes=[
            Route("/healthz", http.healthz),
            Route("/readyz", http.readyz),
            Route("/metrics", http.guarded(http.metrics)),
            Route("/openapi.json", http.guarded(http.openapi)),
            Route("/v1/voices", http.guarded(http.voices)),
            Route("/v1/audio/voices", http.guarded(http.voices)),
            Route("/v1/models", http.guarded(http.models)),
            Route("/v1/watermark/detect", http.guarded(http.detect), methods=["POST"]),
            Route("/v1/audio/speech", OpenAISpeech(house), methods=["POST"]),
            WebSocketRoute(STREAM_PATH, NativeProtocol(house)),
        ]
    )
