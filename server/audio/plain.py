"""Codecs without memory: PCM, WAV and G.711."""

from __future__ import annotations

import struct

from antiphon.engine.watermark.marked import FloatSamples
from antiphon.server.audio.g711 import encode_alaw, encode_ulaw
from antiphon.server.audio.samples import to_int16, to_pcm

_OPEN_END = 0xFFFFFFFF


def wav_header(rate: int, data_bytes: int | None = None) -> bytes:
    """44-byte header of a mono 16-bit WAV file; without a length both sizes are open-ended."""
    data = _OPEN_END if data_bytes is None else data_bytes
    riff = _OPEN_END if data_bytes is None else data_bytes + 36
    return (
        struct.pack("<4sI4s", b"RIFF", riff, b"WAVE")
        + struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16)
        + struct.pack("<4sI", b"data", data)
    )


class PcmCodec:
    """Signed 16-bit little-endian samples."""

    pad_last = True

    def __init__(self, frame_samples: int, join_frames: int) -> None:
        self.frame_samples = frame_samples
        self.join_frames = join_frames

    def encode(self, frame: FloatSamples) -> list[bytes]:
        """Two bytes a sample."""
        return [to_pcm(frame)]

    def finish(self) -> list[bytes]:
        """PCM has no end."""
        return []


class WavCodec(PcmCodec):
    """PCM behind a header, which travels with the first samples. The file is not padded."""

    pad_last = False

    def __init__(self, frame_samples: int, join_frames: int, rate: int) -> None:
        super().__init__(frame_samples, join_frames)
        self._header = wav_header(rate)

    def encode(self, frame: FloatSamples) -> list[bytes]:
        """Two bytes a sample, the header before the first."""
        header, self._header = self._header, b""
        return [header + to_pcm(frame)]

    def finish(self) -> list[bytes]:
        """The bare header if there was no audio at all."""
        header, self._header = self._header, b""
        return [header] if header else []


class UlawCodec:
    """G.711 µ-law."""

    pad_last = True

    def __init__(self, frame_samples: int, join_frames: int) -> None:
        self.frame_samples = frame_samples
        self.join_frames = join_frames

    def encode(self, frame: FloatSamples) -> list[bytes]:
        """One byte a sample."""
        return [encode_ulaw(to_int16(frame))]

    def finish(self) -> list[bytes]:
        """G.711 has no end."""
        return []


class AlawCodec(UlawCodec):
    """G.711 A-law."""

    def encode(self, frame: FloatSamples) -> list[bytes]:
        """One byte a sample."""
        return [encode_alaw(to_int16(frame))]
