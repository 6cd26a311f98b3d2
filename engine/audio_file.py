"""Audio files of strangers, decoded within bounds.

The container is told by its first bytes and only that one demuxer is opened: FFmpeg's own probing
would also try playlists and scripts that fetch other files. Everything is decoded from memory, so
no name in the file is ever opened.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import av
import av.error
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.stream import AudioStream
from av.container import InputContainer
from numpy.typing import NDArray

from antiphon.engine.errors import InvalidRequest

MAX_CHANNELS = 8
"""7.1 is the widest layout a recorder makes; more is a multitrack export or a hostile file."""
RATES = (4_000, 384_000)
TRUNCATION_TOLERANCE_S = 0.25
"""Encoder delay and padding make a sound file's stated length differ from its samples."""

_FULL_SCALE = {"u1": 128.0, "i2": 32768.0, "i4": 2147483648.0}


class DecodedAudio(NamedTuple):
    """A recording as one channel."""

    samples: NDArray[np.float32]
    """(samples,) mono, full scale 1.0; float files may go beyond it."""
    rate: int
    """Samples a second."""


@dataclass(frozen=True, slots=True)
class _Limits:
    seconds: float
    bytes: int


def decode_audio(
    data: bytes | Path, *, max_seconds: float = 600.0, max_bytes: int = 64 << 20
) -> DecodedAudio:
    """Decode wav, flac, mp3, aac (ADTS), ogg (Opus, Vorbis), m4a or webm to mono.

    Channels are averaged. Decoding stops at the first sample past `max_seconds`, so memory is
    bounded by it whatever the file's headers say.

    Raises:
        InvalidRequest: field `audio`; too large, too long, empty, of another kind, damaged, cut
            off, with more than 8 channels, or with samples that are not numbers.
    """
    limits = _Limits(max_seconds, max_bytes)
    content = _read(data, limits)
    demuxer = _demuxer(content)
    try:
        with av.open(
            io.BytesIO(_with_sizes(content)), "r", format=demuxer, metadata_errors="replace"
        ) as container:
            return _decode(container, limits)
    except (av.error.FFmpegError, EOFError, IndexError, MemoryError) as error:
        raise InvalidRequest(
            f"The audio file is damaged: it could not be decoded as {demuxer}.", field="audio"
        ) from error


def _read(data: bytes | Path, limits: _Limits) -> bytes:
    if isinstance(data, Path):
        try:
            with data.open("rb") as file:
                content = file.read(limits.bytes + 1)
        except OSError as error:
            raise InvalidRequest(
                f"{data} cannot be read: {error.strerror}.", field="audio"
            ) from error
    else:
        content = data
    if len(content) > limits.bytes:
        raise InvalidRequest(
            f"The audio file is larger than {limits.bytes} bytes.",
            field="audio",
            limit=limits.bytes,
        )
    if not content:
        raise InvalidRequest("The audio file is empty.", field="audio")
    return content


def _demuxer(content: bytes) -> str:
    head = content[:16]
    if head[:4] in (b"RIFF", b"RF64") and head[8:12] == b"WAVE":
        return "wav"
    if head[:4] == b"fLaC":
        return "flac"
    if head[:4] == b"OggS":
        return "ogg"
    if head[4:8] == b"ftyp":
        return "mp4"
    if head[:4] == b"\x1aE\xdf\xa3":
        return "matroska"
    if head[:3] == b"ID3":
        # An ID3 tag may also stand before FLAC or ADTS AAC; only MP3 is common enough to accept.
        return "mp3"
    if len(head) > 1 and head[0] == 0xFF and head[1] & 0xF6 == 0xF0:
        return "aac"
    if len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0 and head[1] & 0x06:
        return "mp3"
    raise InvalidRequest(
        "The file is not audio that is accepted here: wav, flac, mp3, aac, ogg, m4a or webm.",
        field="audio",
    )


def _with_sizes(content: bytes) -> bytes:
    """Give a WAV file that was streamed while it was made the sizes its header left open."""
    if not content.startswith(b"RIFF\xff\xff\xff\xffWAVE"):
        return content
    data = content.find(b"data\xff\xff\xff\xff", 12, 4096)
    if data < 0:
        return content
    size = (len(content) - data - 8).to_bytes(4, "little")
    return b"".join(
        (
            b"RIFF",
            (len(content) - 8).to_bytes(4, "little"),
            content[8 : data + 4],
            size,
            content[data + 8 :],
        )
    )


def _decode(container: InputContainer, limits: _Limits) -> DecodedAudio:
    if not container.streams.audio:
        raise InvalidRequest("The file has no audio track.", field="audio")
    stream = container.streams.audio[0]
    if stream.codec_context is None:  # a damaged header can name a codec that nobody knows
        raise InvalidRequest("The audio file's codec is not accepted.", field="audio")
    stream.codec_context.thread_count = 1  # short files: threads cost more than they save
    _check_declared(stream, container, limits)
    rate = 0
    total = 0
    pieces: list[NDArray[np.float32]] = []
    for frame in _frames(container, stream):
        rate = rate or _checked_rate(frame.sample_rate)
        if frame.sample_rate != rate:
            raise InvalidRequest("The audio changes its sample rate midway.", field="audio")
        piece = _mono(frame)
        total += len(piece)
        if total > limits.seconds * rate:
            raise _too_long(limits)
        pieces.append(piece)
    if total == 0:
        raise InvalidRequest("The audio file holds no samples.", field="audio")
    samples = np.concatenate(pieces)
    if not np.isfinite(samples).all():
        raise InvalidRequest("The audio has samples that are not numbers.", field="audio")
    _check_complete(stream, total / rate)
    return DecodedAudio(samples, rate)


def _frames(container: InputContainer, stream: AudioStream) -> Iterator[AudioFrame]:
    for packet in container.demux(stream):
        if packet.is_corrupt:
            raise InvalidRequest("The audio file is damaged.", field="audio")
        yield from packet.decode()


def _check_declared(stream: AudioStream, container: InputContainer, limits: _Limits) -> None:
    """Refuse by the header where it already says too much; decoding checks again."""
    _check_channels(stream.channels)
    declared = [
        float(stream.duration * stream.time_base)
        if stream.duration is not None and stream.time_base is not None
        else 0.0,
        container.duration / av.time_base if container.duration else 0.0,
    ]
    if max(declared) > limits.seconds + TRUNCATION_TOLERANCE_S:
        raise _too_long(limits)


def _check_complete(stream: AudioStream, seconds: float) -> None:
    if stream.duration is None or stream.time_base is None:
        return
    declared = float(stream.duration * stream.time_base)
    if seconds < declared - TRUNCATION_TOLERANCE_S:
        raise InvalidRequest(
            f"The audio file is cut off: it says {declared:.1f} s but holds {seconds:.1f} s.",
            field="audio",
        )


def _check_channels(channels: int) -> None:
    if not 1 <= channels <= MAX_CHANNELS:
        raise InvalidRequest(
            f"The audio has {channels} channels; at most {MAX_CHANNELS} are accepted.",
            field="audio",
            limit=MAX_CHANNELS,
        )


def _checked_rate(rate: int) -> int:
    low, high = RATES
    if not low <= rate <= high:
        raise InvalidRequest(
            f"The audio's sample rate of {rate} Hz is outside {low} to {high} Hz.",
            field="audio",
            limit=low if rate < low else high,
        )
    return rate


def _mono(frame: AudioFrame) -> NDArray[np.float32]:
    channels = frame.layout.nb_channels
    _check_channels(channels)
    raw = frame.to_ndarray()
    if not frame.format.is_planar:
        raw = raw.reshape(-1, channels).T
    kind = raw.dtype.str[1:]
    if kind in ("f4", "f8"):
        return _averaged(raw.astype(np.float32))
    if kind not in _FULL_SCALE:
        raise InvalidRequest("The audio's sample format is not accepted.", field="audio")
    values = raw.astype(np.float32)
    if kind == "u1":
        values -= np.float32(128)
    values /= np.float32(_FULL_SCALE[kind])
    return _averaged(values)


def _averaged(channels: NDArray[np.float32]) -> NDArray[np.float32]:
    with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is refused afterwards
        mono: NDArray[np.float32] = channels.mean(axis=0, dtype=np.float32)
    return mono


def _too_long(limits: _Limits) -> InvalidRequest:
    return InvalidRequest(
        f"The audio is longer than {limits.seconds:g} s.", field="audio", limit=limits.seconds
    )
