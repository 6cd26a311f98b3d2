"""The OpenAPI document of the HTTP part. The WebSocket is described in docs/protocol.md."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from antiphon.server.openapi_calls import CALL, call_paths
from antiphon.server.voices.openapi import VOICE_SCHEMAS, voice_paths

_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "type"],
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "type": {"type": "string"},
                "field": {"type": ["string", "null"]},
                "param": {"type": ["string", "null"]},
                "limit": {"type": ["string", "number", "null"]},
                "retry_after_s": {"type": "number"},
            },
        }
    },
}
_VOICE: dict[str, Any] = {
    "type": "object",
    "required": ["name", "model", "language", "mode", "default"],
    "properties": {
        "name": {"type": "string"},
        "model": {"type": "string"},
        "language": {"type": "string"},
        "description": {"type": "string"},
        "mode": {"type": "string"},
        "first_token_text_tokens": {"type": "integer"},
        "default": {"type": "boolean"},
    },
}
_DETECTION: dict[str, Any] = {
    "type": "object",
    "required": ["watermark", "marked", "score", "spans", "seconds"],
    "properties": {
        "watermark": {"type": "string"},
        "marked": {"type": "boolean"},
        "score": {"type": "number", "minimum": 0, "maximum": 1},
        "spans": {
            "type": "array",
            "items": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
        },
        "seconds": {"type": "number"},
    },
}
_SPEECH: dict[str, Any] = {
    "type": "object",
    "required": ["input"],
    "properties": {
        "input": {"type": "string"},
        "model": {"type": "string"},
        "voice": {"oneOf": [{"type": "string"}, {"type": "object"}]},
        "response_format": {"enum": ["mp3", "opus", "aac", "flac", "wav", "pcm"]},
        "stream_format": {"enum": ["audio", "sse"]},
        "speed": {"type": "number"},
        "instructions": {"type": "string"},
        "language": {"type": "string"},
        "seed": {"type": "integer"},
        "sample_rate": {"type": "integer", "default": 24000},
    },
}
_CONVERSION: dict[str, Any] = {
    "type": "object",
    "required": ["audio"],
    "properties": {
        "audio": {"type": "string", "contentMediaType": "application/octet-stream"},
        "model": {"type": "string"},
        "voice": {"type": "string"},
        "response_format": {"enum": ["mp3", "opus", "aac", "flac", "wav", "pcm"]},
        "sample_rate": {"type": "integer"},
        "speed": {"type": "number"},
    },
}


def document() -> dict[str, Any]:
    """The document as JSON types."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Antiphon",
            "version": version("antiphon"),
            "description": "Text that is still being written becomes speech that is heard.",
        },
        "paths": {**_paths(), **voice_paths(), **call_paths()},
        "components": {
            "schemas": {
                "Error": _ERROR,
                "Voice": _VOICE,
                "Detection": _DETECTION,
                "SpeechRequest": _SPEECH,
                "ConversionForm": _CONVERSION,
                "Call": CALL,
                **VOICE_SCHEMAS,
            },
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
                "query": {"type": "apiKey", "in": "query", "name": "api_key"},
            },
        },
        "security": [{"bearer": []}, {"header": []}, {"query": []}, {}],
    }


def _paths() -> dict[str, Any]:
    status = {"type": "object", "properties": {"status": {"type": "string"}}}
    voices = {
        "type": "object",
        "properties": {"voices": {"type": "array", "items": _schema("Voice")}},
    }
    models = {
        "type": "object",
        "properties": {"data": {"type": "array", "items": {"type": "object"}}},
    }
    upload = {"required": True, "content": {"application/octet-stream": {"schema": {}}}}
    speech = {
        "required": True,
        "content": {"application/json": {"schema": _schema("SpeechRequest")}},
    }
    audio = {"audio/*": {"schema": {}}, "text/event-stream": {"schema": {"type": "string"}}}
    return {
        "/healthz": {"get": _get("The process lives", status, open_to_all=True)},
        "/readyz": {"get": _get("The server takes new work", status, 503, open_to_all=True)},
        "/metrics": {"get": _operation("Prometheus metrics", {"text/plain": {"schema": {}}}, 401)},
        "/openapi.json": {"get": _get("This document", {"type": "object"}, 401)},
        "/v1/audio/voices": {"get": _get("Voices, where OpenAI clients look", voices, 401)},
        "/v1/models": {"get": _get("Loaded models", models, 401)},
        "/v1/watermark/detect": {
            "post": {
                **_get(
                    "Look for the watermark in an audio file",
                    _schema("Detection"),
                    400,
                    401,
                    408,
                    413,
                    429,
                ),
                "requestBody": upload,
            }
        },
        "/v1/audio/speech": {
            "post": {
                **_operation("Speak a whole text", audio, 400, 401, 404, 413, 429, 503),
                "requestBody": speech,
            }
        },
        "/v1/audio/convert": {
            "post": {
                **_operation(
                    "Say a recording again in another voice",
                    {"audio/*": {"schema": {}}},
                    *(400, 401, 403, 404, 408, 413, 429, 503),
                ),
                "requestBody": {
                    "required": True,
                    "content": {"multipart/form-data": {"schema": _schema("ConversionForm")}},
                },
            }
        },
    }


def _schema(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _get(
    summary: str, schema: dict[str, Any], *errors: int, open_to_all: bool = False
) -> dict[str, Any]:
    operation = _operation(summary, {"application/json": {"schema": schema}}, *errors)
    return {**operation, "security": []} if open_to_all else operation


def _operation(summary: str, content: dict[str, Any], *errors: int) -> dict[str, Any]:
    failed = {"application/json": {"schema": _schema("Error")}}
    return {
        "summary": summary,
        "responses": {
            "200": {"description": "Done", "content": content},
            **{str(code): {"description": "Refused", "content": failed} for code in errors},
        },
    }
