"""The `.voice` file: safetensors with JSON metadata, versioned. Nothing in it is executed.

tokens     int32    (tokens,)
mel        float32  (frames, bins)
embedding  float32  (192,)
metadata   format, version, record (JSON: name, transcript, language, model, fingerprint,
           consent, created, quality)
"""

from __future__ import annotations

import json
import os
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from antiphon.engine.errors import InvalidRequest
from antiphon.engine.voice.consent import Consent
from antiphon.engine.voice.record import Voice
from antiphon.engine.voice.reference import EMBEDDING_SIZE, ReferenceFeatures

FORMAT = "antiphon.voice"
VERSION = 1
MAX_BYTES = 4 << 20
"""30 s are 0.8 MB at version 1's frame rate; more is no voice."""
_ARRAYS = {"tokens": ("I32", 1), "mel": ("F32", 2), "embedding": ("F32", 1)}
_FIELDS = frozenset(
    ("name", "transcript", "language", "model", "fingerprint", "consent", "created", "quality")
)


def voice_to_bytes(voice: Voice) -> bytes:
    """Return the content of a `.voice` file."""
    record = {
        "name": voice.name,
        "transcript": voice.transcript,
        "language": voice.language,
        "model": voice.model,
        "fingerprint": voice.fingerprint,
        "consent": None if voice.consent is None else voice.consent.to_json(),
        "created": voice.created.isoformat(),
        "quality": dict(voice.quality),
    }
    arrays = {
        "tokens": voice.features.tokens.astype(np.int32),
        "mel": np.ascontiguousarray(voice.features.mel, dtype=np.float32),
        "embedding": voice.features.embedding.astype(np.float32),
    }
    metadata = {"format": FORMAT, "version": str(VERSION), "record": json.dumps(record)}
    return safetensors.numpy.save(arrays, metadata=metadata)


def voice_from_bytes(content: bytes) -> Voice:
    """Read a `.voice` file's content.

    Raises:
        InvalidRequest: field `voice`; damaged, of another format or version, or with values that
            no enrolment writes.
    """
    metadata = _metadata(content)
    try:
        arrays: dict[str, NDArray[Any]] = safetensors.numpy.load(content)
    except (safetensors.SafetensorError, KeyError, ValueError) as error:
        raise _damaged("its arrays cannot be read") from error
    features = _features(arrays)
    try:
        record = json.loads(metadata["record"])
    except (KeyError, ValueError, RecursionError) as error:
        raise _damaged("its record cannot be read") from error
    return _voice(record, features)


def save_voice(voice: Voice, path: Path) -> None:
    """Write a `.voice` file; a crash leaves the old one or none."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".part")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(voice_to_bytes(voice))
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load_voice(path: Path) -> Voice:
    """Read a `.voice` file; raises `InvalidRequest` as `voice_from_bytes` does."""
    try:
        with path.open("rb") as file:
            return voice_from_bytes(file.read(MAX_BYTES + 1))
    except OSError as error:
        raise InvalidRequest(f"{path.name} cannot be read.", field="voice") from error


def _damaged(what: str) -> InvalidRequest:
    return InvalidRequest(f"This is no usable voice file: {what}.", field="voice")


def _metadata(content: bytes) -> dict[str, str]:
    """Check size, header, format and version before any array is touched."""
    if len(content) > MAX_BYTES:
        raise InvalidRequest("The voice file is too large.", field="voice", limit=MAX_BYTES)
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > len(content) - 8:
        raise _damaged("it is too short")
    try:
        header = json.loads(content[8 : 8 + length])
    except (ValueError, RecursionError) as error:
        raise _damaged("its header cannot be read") from error
    if not isinstance(header, dict) or set(header) != {*_ARRAYS, "__metadata__"}:
        raise _damaged("it holds other arrays than a voice has")
    for name, (dtype, rank) in _ARRAYS.items():
        entry = header[name]
        shape = entry.get("shape") if isinstance(entry, dict) else None
        if not isinstance(shape, list) or len(shape) != rank or entry.get("dtype") != dtype:
            raise _damaged(f"{name} has another type or rank")
    metadata = header["__metadata__"]
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise _damaged("it does not say that it is one")
    if metadata.get("version") != str(VERSION):
        raise InvalidRequest(
            f"The voice file has version {metadata.get('version')!r}; only {VERSION} is read.",
            field="voice",
            limit=VERSION,
        )
    return metadata


def _features(arrays: dict[str, NDArray[Any]]) -> ReferenceFeatures:
    tokens, mel, embedding = arrays["tokens"], arrays["mel"], arrays["embedding"]
    if embedding.shape != (EMBEDDING_SIZE,):
        raise _damaged("the embedding has another size")
    if len(tokens) == 0 or len(mel) == 0 or tokens.min() < 0:
        raise _damaged("it holds no speech")
    if not (np.isfinite(mel).all() and np.isfinite(embedding).all()):
        raise _damaged("it has values that are not numbers")
    return ReferenceFeatures(tokens.astype(np.int64), mel, embedding)


def _voice(record: object, features: ReferenceFeatures) -> Voice:
    if not isinstance(record, dict) or set(record) != _FIELDS:
        raise _damaged("its record has other fields")
    for name in ("name", "transcript", "language", "model", "fingerprint", "created"):
        if not isinstance(record[name], str):
            raise _damaged(f"{name} is no text")
    quality = record["quality"]
    if not isinstance(quality, dict) or not all(
        isinstance(value, int | float) for value in quality.values()
    ):
        raise _damaged("its quality figures are no numbers")
    try:
        created = datetime.fromisoformat(record["created"])
    except ValueError as error:
        raise _damaged("its date is none") from error
    consent = None if record["consent"] is None else Consent.from_json(record["consent"])
    return Voice(
        name=record["name"],
        features=features,
        model=record["model"],
        fingerprint=record["fingerprint"],
        consent=consent,
        transcript=record["transcript"],
        language=record["language"],
        created=created,
        quality=quality,
    )
