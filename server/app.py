"""The application: every route of the server, on one port."""

from __future__ import annotations

import importlib.util

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Route, WebSocketRoute

from antiphon.server.calls.control import calls_routes
from antiphon.server.calls.registry import Calls
from antiphon.server.house import House
from antiphon.server.http import HttpPart, unknown_path, wrong_method
from antiphon.server.phone.routes import phone_routes
from antiphon.server.protocols.convert import ConversionRoute
from antiphon.server.protocols.native import NativeProtocol
from antiphon.server.protocols.openai import OpenAISpeech
from antiphon.server.voices.routes import voice_routes
from antiphon.server.web import web_routes

STREAM_PATH = "/v1/audio/speech/stream"


def create_app(house: House, calls: Calls) -> Starlette:
    """Assemble the routes of a server."""
    http = HttpPart(house)
    app = Starlette(
        routes=[
            Route("/healthz", http.healthz),
            Route("/readyz", http.readyz),
            Route("/metrics", http.guarded(http.metrics)),
            Route("/openapi.json", http.guarded(http.openapi)),
            Route("/v1/audio/voices", http.guarded(http.voices)),
            Route("/v1/models", http.guarded(http.models)),
            Route("/v1/watermark/detect", http.guarded(http.detect), methods=["POST"]),
            Route("/v1/audio/speech", OpenAISpeech(house), methods=["POST"]),
            Route("/v1/audio/convert", ConversionRoute(house), methods=["POST"]),
            WebSocketRoute(STREAM_PATH, NativeProtocol(house)),
            *voice_routes(house, http),
            *calls_routes(house, calls, http),
            *phone_routes(house, calls, http),
            *_browser_routes(house, calls, http),
            *web_routes(),
        ],
        exception_handlers={404: unknown_path, 405: wrong_method},
    )
    # A path is served as it is written or not at all.
    app.router.redirect_slashes = False
    return app


def _browser_routes(house: House, calls: Calls, http: HttpPart) -> list[BaseRoute]:
    """Doors for browsers, where the extra `webrtc` is installed."""
    if importlib.util.find_spec("aiortc") is None:
        return []
    from antiphon.server.rtc.routes import rtc_routes

    return rtc_routes(house, calls, http)
