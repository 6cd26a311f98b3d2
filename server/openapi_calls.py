"""The OpenAPI paths of calls. Their WebSockets are described in docs/calls.md."""

from __future__ import annotations

import importlib.util
from typing import Any

CALL: dict[str, Any] = {
    "type": "object",
    "required": ["id", "kind", "peer", "started_at", "seconds", "format", "sample_rate"],
    "properties": {
        "id": {"type": "string"},
        "kind": {"enum": ["browser", "phone"]},
        "peer": {"type": "string"},
        "started_at": {"type": "number"},
        "seconds": {"type": "number"},
        "format": {"type": "string"},
        "sample_rate": {"type": "integer"},
        "speech_s": {"type": "number"},
        "buffered_s": {"type": "number"},
        "underruns": {"type": "integer"},
        "clock_jumps": {"type": "integer"},
        "late_frames": {"type": "integer"},
        "most_late_ms": {"type": "number"},
        "caller_s": {"type": "number"},
        "loss_percent": {"type": "integer"},
        "details": {"type": "object"},
    },
}

_ID = {"name": "call_id", "in": "path", "required": True, "schema": {"type": "string"}}
_WISHES = [
    {"name": name, "in": "query", "required": False, "schema": {"type": "string"}}
    for name in ("voice", "model", "language")
]
_SDP = {"application/sdp": {"schema": {"type": "string"}}}
_OBJECT = {"application/json": {"schema": {"type": "object"}}}


def call_paths() -> dict[str, Any]:
    """Paths of the doors that are open on this machine."""
    listing = {
        "type": "object",
        "properties": {"calls": {"type": "array", "items": {"$ref": "#/components/schemas/Call"}}},
    }
    twiml = {
        **_operation("TwiML that connects a call to /v1/twilio", 200, _xml(), 401, 500),
        "parameters": _WISHES,
    }
    paths = {
        "/v1/calls": {
            "get": _operation("Calls", 200, {"application/json": {"schema": listing}}, 401)
        },
        "/v1/calls/{call_id}": {
            "delete": {**_operation("Hang up", 204, None, 401, 404), "parameters": [_ID]}
        },
        "/v1/twilio/twiml": {"get": twiml, "post": twiml},
    }
    return {**paths, **_browser_paths()} if importlib.util.find_spec("aiortc") else paths


def _browser_paths() -> dict[str, Any]:
    return {
        "/v1/rtc": {
            "post": {
                **_operation("Call from a browser (WHEP)", 201, _SDP, 400, 401, 404, 413, 429, 503),
                "parameters": _WISHES,
                "requestBody": {"required": True, "content": _SDP},
            }
        },
        "/v1/rtc/ice": {"get": _operation("ICE servers for the browser", 200, _OBJECT, 401)},
        "/v1/rtc/{call_id}": {
            "delete": {**_operation("Hang up", 204, None, 401, 404), "parameters": [_ID]},
            "patch": {
                **_operation("Candidates found later", 204, None, 400, 401, 404, 413),
                "parameters": [_ID],
                "requestBody": {
                    "required": True,
                    "content": {"application/trickle-ice-sdpfrag": {"schema": {"type": "string"}}},
                },
            },
        },
        "/api/offer": {
            "post": {
                **_operation(
                    "Call from Pipecat's transport", 200, _OBJECT, 400, 401, 413, 429, 503
                ),
                "requestBody": {"required": True, "content": _OBJECT},
            },
            "patch": {
                **_operation("Candidates found later", 200, _OBJECT, 400, 401, 404, 413),
                "requestBody": {"required": True, "content": _OBJECT},
            },
        },
    }


def _xml() -> dict[str, Any]:
    return {"application/xml": {"schema": {"type": "string"}}}


def _operation(
    summary: str, status: int, content: dict[str, Any] | None, *errors: int
) -> dict[str, Any]:
    failed = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    done: dict[str, Any] = {"description": "Done"}
    if content is not None:
        done["content"] = content
    return {
        "summary": summary,
        "responses": {
            str(status): done,
            **{str(code): {"description": "Refused", "content": failed} for code in errors},
        },
    }
