"""Compressed containers written while they are heard: Ogg/Opus, MP3, FLAC, AAC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import av
import numpy as np

from antiphon.engine.watermark.marked import FloatSamples
from antiphon.server.audio.formats import AudioFormat
from antiphon.server.audio.opus import COMPLEXITY
from antiphon.server.audio.samples import to_int16

_FLAC_FRAME_MS = 20


@dataclass(frozen=True, slots=True)
class _Recipe:
    """How libav writes one format."""

    muxer: str
    codec: str
    sample_format: str
    muxer_options: Mapping[str, str]
    codec_options: Mapping[str, str] = field(default_factory=dict)


# `fflags=bitexact` keeps random serial numbers and version strings out: equal audio, equal bytes.
_RECIPES: Mapping[AudioFormat, _Recipe] = {
    # Without the two page options nothing leaves for a second.
    AudioFormat.OPUS: _Recipe(
        "ogg",
        "libopus",
        "flt",
        {"page_duration": "20000", "flush_packets": "1", "fflags": "bitexact"},
        {
            "application": "voip",
            "frame_duration": "20",
            "compression_level": str(COMPLEXITY),
        },
    ),
    AudioFormat.MP3: _Recipe(
        "mp3",
        "libmp3lame",
        "s16p",
        {"write_xing": "0", "id3v2_version": "0", "flush_packets": "1", "fflags": "bitexact"},
        # LAME at its default quality costs over a millisecond a frame; 7 is its fast setting.
        {"compression_level": "7", "reservoir": "0"},
    ),
    AudioFormat.FLAC: _Recipe(
        "flac",
        "flac",
        "s16",
        {"flush_packets": "1", "fflags": "bitexact"},
        {"compression_level": "5"},
    ),
    AudioFormat.AAC: _Recipe(
        "adts", "aac", "fltp", {"flush_packets": "1", "fflags": "bitexact"}, {"aac_coder": "fast"}
    ),
}


class _Outbox:
    """A file that cannot seek: keeps what the muxer wrote until it is taken."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> list[bytes]:
        """All bytes since the last call, as one message, or nothing."""
        joined = b"".join(self._parts)
        self._parts.clear()
        return [joined] if joined else []


class ContainerCodec:
    """Frames in, pieces of one continuous file out. A last short frame is allowed."""

    pad_last = False
    join_frames = 1

    def __init__(self, fmt: AudioFormat, rate: int, *, bitrate: int | None) -> None:
        recipe = _RECIPES[fmt]
        self._recipe = recipe
        self.rate = rate
        self._outbox = _Outbox()
        self._container = av.open(
            self._outbox, "w", format=recipe.muxer, options=dict(recipe.muxer_options)
        )
        stream = self._container.add_stream(
            recipe.codec, rate=rate, layout="mono", options=dict(recipe.codec_options)
        )
        assert isinstance(stream, av.AudioStream)
        codec = stream.codec_context
        codec.format = recipe.sample_format
        codec.time_base = Fraction(1, rate)
        codec.flags |= av.codec.context.Flags.bitexact
        if bitrate is not None:
            codec.bit_rate = bitrate
        self._container.start_encoding()
        self._stream = stream
        self._pts = 0
        # FLAC takes frames of any length; its own default would hold back 170 ms.
        self.frame_samples = (
            rate * _FLAC_FRAME_MS // 1000 if fmt is AudioFormat.FLAC else codec.frame_size
        )

    def encode(self, frame: FloatSamples) -> list[bytes]:
        """Encode one frame of `frame_samples` (the last may be shorter)."""
        wants_int16 = self._recipe.sample_format.startswith("s16")
        values = to_int16(frame) if wants_int16 else np.ascontiguousarray(frame, dtype=np.float32)
        audio = av.AudioFrame.from_ndarray(
            values[None], format=self._recipe.sample_format, layout="mono"
        )
        audio.sample_rate = self.rate
        audio.pts = self._pts
        audio.time_base = Fraction(1, self.rate)
        self._pts += len(frame)
        self._container.mux(self._stream.encode(audio))
        return self._outbox.take()

    def finish(self) -> list[bytes]:
        """Flush the codec and end the file."""
        if self._pts:
            self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._outbox.take()
