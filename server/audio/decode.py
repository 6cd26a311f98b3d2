"""Reads audio files that people send: common formats, bounded, opening nothing else."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np

from antiphon.engine.errors import InvalidRequest
from antiphon.engine.watermark.marked import FloatSamples

MAX_SECONDS = 600.0
MAX_BYTES = 64 * 1024 * 1024

_DEMUXERS = "wav,w64,aiff,au,caf,flac,mp3,ogg,aac,matroska,webm,mov,mp4,m4a,3gp,3g2,mj2"
"""Formats that hold their own samples. Playlists and the like, which could make libav open other
files or addresses, are left out."""

_RATES = (4_000, 384_000)


@dataclass(frozen=True, slots=True, eq=False)
class DecodedAudio:
    """Mono samples of a file."""

    samples: FloatSamples
    """(samples,), in [-1, 1]; channels are mixed down."""
    sample_rate: int
    codec: str

    @property
    def seconds(self) -> float:
        """Duration."""
        return len(self.samples) / self.sample_rate


def decode_audio(
    source: bytes | Path,
    *,
    max_seconds: float = MAX_SECONDS,
    max_bytes: int = MAX_BYTES,
    field: str = "file",
) -> DecodedAudio:
    """Decode the first audio track of a file.

    Args:
        source: the file's content, or where it lies.
        max_seconds, max_bytes: longest and largest file taken; decoding stops there, whatever the
            header claims.
        field: name of the request's part for error messages.

    Raises:
        InvalidRequest: not readable, not audio, damaged, empty, too long or too large.
    """
    data = _read(source, max_bytes, field)
    try:
        with av.open(
            io.BytesIO(data),
            mode="r",
            options={"format_whitelist": _DEMUXERS, "protocol_whitelist": "none"},
        ) as container:
            if not container.streams.audio:
                raise InvalidRequest("The file has no audio track.", field=field)
            return _decode(container, max_seconds, field)
    except (av.error.FFmpegError, ValueError, OverflowError) as error:
        raise InvalidRequest(
            "The file could not be decoded as audio (WAV, FLAC, MP3, Ogg, AAC, MP4 and WebM are "
            "read).",
            field=field,
        ) from error


def _read(source: bytes | Path, max_bytes: int, field: str) -> bytes:
    if isinstance(source, Path):
        source = _read_file(source, max_bytes, field)
    if not source:
        raise InvalidRequest("The file is empty.", field=field)
    if len(source) > max_bytes:
        raise InvalidRequest(
            f"The file is larger than {max_bytes} bytes.", field=field, limit=max_bytes
        )
    return source


def _read_file(path: Path, max_bytes: int, field: str) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(max_bytes + 1)
    except OSError as error:
        reason = error.strerror or "it could not be opened"
        raise InvalidRequest(f"The file {path} cannot be read: {reason}.", field=field) from error


def _decode(container: av.container.InputContainer, max_seconds: float, field: str) -> DecodedAudio:
    stream = container.streams.audio[0]
    rate = stream.rate
    if not _RATES[0] <= rate <= _RATES[1]:
        raise InvalidRequest(
            f"A sample rate of {rate} Hz is outside {_RATES[0]} to {_RATES[1]} Hz.",
            field=field,
            limit=f"{_RATES[0]}..{_RATES[1]}",
        )
    limit = int(max_seconds * rate)
    parts: list[FloatSamples] = []
    total = 0
    for part in _mono(container, stream, rate):
        total += len(part)
        if total > limit:
            raise InvalidRequest(
                f"The audio is longer than {max_seconds:g} seconds.",
                field=field,
                limit=max_seconds,
            )
        parts.append(part)
    if total == 0:
        raise InvalidRequest("The file holds no samples.", field=field)
    samples = np.concatenate(parts)
    if not np.isfinite(samples).all():
        raise InvalidRequest("The audio holds values that are not numbers.", field=field)
    return DecodedAudio(samples, rate, stream.codec_context.name)


def _mono(
    container: av.container.InputContainer, stream: av.AudioStream, rate: int
) -> Iterator[FloatSamples]:
    # The mean of the channels is taken here: libav's own down-mix keeps the power instead, and
    # equal channels would then exceed full scale.
    to_float = av.AudioResampler(format="fltp", rate=rate)
    for frame in container.decode(stream):
        for planes in to_float.resample(frame):
            yield planes.to_ndarray().mean(axis=0)
    for planes in to_float.resample(None):
        yield planes.to_ndarray().mean(axis=0)
