"""Opus packets as frames of a turn: one packet a message."""

from __future__ import annotations

from antiphon.engine.watermark.marked import FloatSamples
from antiphon.server.audio.opus import (
    OpusApplication,
    OpusBackend,
    OpusTuning,
    opus_encoder,
)


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
        tuning: OpusTuning | None = None,
    ) -> None:
        self.frame_samples = rate * frame_ms // 1000
        self._tuning = tuning
        self._loss_percent = 0 if tuning is None else tuning.loss_percent
        self._encoder = opus_encoder(
            rate,
            bitrate=bitrate,
            frame_ms=frame_ms,
            backend=backend,
            application=application,
            packet_loss_percent=self._loss_percent,
        )

    def encode(self, frame: FloatSamples) -> list[bytes]:
        """One packet."""
        if self._tuning is not None and self._tuning.loss_percent != self._loss_percent:
            self._loss_percent = self._tuning.loss_percent
            self._encoder.expect_loss(self._loss_percent)
        return self._encoder.encode(frame)

    def finish(self) -> list[bytes]:
        """The packet that carries the delayed samples."""
        return self._encoder.finish()
