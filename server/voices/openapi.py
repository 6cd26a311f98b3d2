"""The OpenAPI paths of voices."""

from __future__ import annotations

from typing import Any

_TEXT = {"type": "string"}
_NULLABLE = {"type": ["string", "null"]}
_CONSENT: dict[str, Any] = {
    "type": "object",
    "required": ["given_by", "scope"],
    "properties": {
        "given_by": _TEXT,
        "given_at": {**_TEXT, "format": "date-time"},
        "scope": {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": 16},
        "until": {"type": ["string", "null"], "format": "date-time"},
    },
}
_WANTED = {
    "name": {**_TEXT, "pattern": "^[a-z0-9][a-z0-9_-]{0,63}$"},
    "transcript": _NULLABLE,
    "language": _TEXT,
    "model": _NULLABLE,
    "clean_up": {"type": ["boolean", "null"]},
    "replace": {"type": "boolean"},
}
_NEW: dict[str, Any] = {
    "type": "object",
    "required": ["name", "audio", "consent"],
    "properties": {
        **_WANTED,
        "audio": {**_TEXT, "contentEncoding": "base64"},
        "consent": {"$ref": "#/components/schemas/Consent"},
    },
}
_FORM: dict[str, Any] = {
    "type": "object",
    "required": ["name", "audio", "consent_by", "consent_scope"],
    "properties": {
        **_WANTED,
        "audio": {**_TEXT, "contentMediaType": "application/octet-stream"},
        "consent_by": _TEXT,
        "consent_scope": _TEXT,
        "consent_until": _TEXT,
        "consent_given_at": _TEXT,
    },
}
_REPORT: dict[str, Any] = {
    "type": "object",
    "required": ["verdict", "messages", "findings"],
    "properties": {
        "verdict": {"enum": ["good", "warn", "refuse"]},
        "messages": {"type": "array", "items": _TEXT},
        "findings": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "measure": _TEXT,
                    "value": {"type": "number"},
                    "verdict": _TEXT,
                    "message": _TEXT,
                },
            },
        },
    },
}
_DETAILS: dict[str, Any] = {
    "type": "object",
    "required": ["name", "model", "language", "mode", "usable"],
    "properties": {
        "name": _TEXT,
        "model": _TEXT,
        "language": _TEXT,
        "mode": _TEXT,
        "transcript": _TEXT,
        "consent": {"oneOf": [{"$ref": "#/components/schemas/Consent"}, {"type": "null"}]},
        "created": _TEXT,
        "quality": {"type": "object"},
        "usable": {"type": "boolean"},
        "reason": _NULLABLE,
    },
}
VOICE_SCHEMAS = {
    "Consent": _CONSENT,
    "NewVoice": _NEW,
    "NewVoiceForm": _FORM,
    "QualityReport": _REPORT,
    "VoiceDetails": _DETAILS,
}
_NAME = {"name": "name", "in": "path", "required": True, "schema": _TEXT}


def voice_paths() -> dict[str, Any]:
    """Paths below `/v1/voices`."""
    voices = {
        "type": "object",
        "properties": {"voices": {"type": "array", "items": _schema("Voice")}},
    }
    made = {
        "type": "object",
        "required": ["voice", "report"],
        "properties": {
            "voice": _schema("VoiceDetails"),
            "report": _schema("QualityReport"),
            "before_clean_up": {"oneOf": [_schema("QualityReport"), {"type": "null"}]},
        },
    }
    removed = {"type": "object", "properties": {"removed": _TEXT}}
    add = {
        **_operation("Make a voice of a recording of 3 to 30 s", 201, made, *_ADD_ERRORS),
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": _schema("NewVoice")},
                "multipart/form-data": {"schema": _schema("NewVoiceForm")},
            },
        },
    }
    show = _operation("One voice", 200, _schema("VoiceDetails"), 401, 404)
    remove = _operation("Remove a voice; who speaks with it falls silent", 200, removed, 401, 404)
    return {
        "/v1/voices": {"get": _operation("Voices", 200, voices, 401), "post": add},
        "/v1/voices/{name}": {
            "get": {**show, "parameters": [_NAME]},
            "delete": {**remove, "parameters": [_NAME]},
        },
    }


_ADD_ERRORS = (400, 401, 403, 408, 413, 422, 429, 503)


def _schema(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _operation(summary: str, status: int, schema: dict[str, Any], *errors: int) -> dict[str, Any]:
    failed = {"application/json": {"schema": _schema("Error")}}
    done = {"description": "Done", "content": {"application/json": {"schema": schema}}}
    return {
        "summary": summary,
        "responses": {
            str(status): done,
            **{str(code): {"description": "Refused", "content": failed} for code in errors},
        },
    }
