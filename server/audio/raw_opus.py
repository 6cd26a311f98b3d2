"""Opus packets as frames of a turn: one packet a message."""

from __future__ import annotations

from antiphon.engine.watermark.marked import FloatSamples
from antiphon.server.audio.opus import OpusApplication, OpusBackend, opus_encoder


class RawOpusCodec:
    """One packet for each frame, and one more for the codec's own delay."""

    pad_last = True
    join_frames = 1

    def __init__(
        self,
        rate: int,
        *,
        bitrate: int,
        frame_ms: int,
        backend: OpusBackend,
        application: OpusApplication,
    ) -> None:
        self.frame_samples = rate * frame_ms // 1000
        self._encoder = opus_encoder(
            rate, bitrate=bitrate, frame_ms=frame_ms, backend=backend, application=application
        )

    def encode(self, frame: FloatSamples) -> list[bytes]:
        """One packet."""
        return self._encoder.encode(frame)

    def finish(self) -> list[bytes]:
        """The packet that carries the delayed samples."""
        return self._encoder.finish()
