"""One interface over every output format: marked samples in, messages out.

    MarkedAudio ─► resampler ─► frames of equal length ─► codec ─► messages

An encoder is the state of one turn: made when the turn starts, dropped when it ends or is
cancelled. What it writes does not depend on how the audio was split over calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from antiphon.engine.errors import InvalidRequest
from antiphon.engine.watermark.marked import FloatSamples, MarkedAudio
from antiphon.server.audio.container import ContainerCodec
from antiphon.server.audio.formats import (
    CONTENT_TYPES,
    DEFAULT_BITRATES,
    AudioFormat,
    check_rate,
)
from antiphon.server.audio.opus import OpusApplication, OpusBackend, OpusTuning
from antiphon.server.audio.plain import AlawCodec, PcmCodec, UlawCodec, WavCodec
from antiphon.server.audio.raw_opus import RawOpusCodec
from antiphon.server.audio.resample import Resampler
from antiphon.server.audio.samples import amplified

MESSAGE_MS = 100
"""Longest PCM or G.711 message when enough audio is there at once. Longer ones save a little
overhead and make a slow client's buffer coarser."""

_EMPTY: FloatSamples = np.zeros(0, dtype=np.float32)


class FrameCodec(Protocol):
    """Turns frames of one length into bytes. The last frame may be shorter or padded."""

    frame_samples: int
    pad_last: bool
    """Whether the last frame is filled up with silence."""
    join_frames: int
    """Frames that may travel in one message when they are ready together."""

    def encode(self, frame: FloatSamples) -> list[bytes]:
        """Encode one frame."""

    def finish(self) -> list[bytes]:
        """End the stream."""


class Encoder:
    """Encodes one turn.

    Attributes:
        format, content_type, rate: what comes out.
        source_rate: the only rate accepted in.
        samples_in: samples taken, at `source_rate`.
        samples_out: samples encoded, at `rate`, without the padding of the last frame. After
            `finish` it is round(samples_in · rate / source_rate).
    """

    def __init__(
        self,
        fmt: AudioFormat,
        rate: int,
        source_rate: int,
        codec: FrameCodec,
        gain_db: float = 0.0,
    ) -> None:
        self.format = fmt
        self.content_type = CONTENT_TYPES[fmt]
        self.rate = rate
        self.source_rate = source_rate
        self.samples_in = 0
        self.samples_out = 0
        self._codec = codec
        self._gain = 10 ** (gain_db / 20)
        self._resampler = Resampler(source_rate, rate)
        self._pending = _EMPTY
        self._finished = False
        step_frames = codec.join_frames
        self._step = max(1, step_frames * codec.frame_samples * source_rate // rate)

    @property
    def frame_ms(self) -> float:
        """Length of one frame; audio below it waits for more."""
        return 1000 * self._codec.frame_samples / self.rate

    def encode(self, audio: MarkedAudio) -> list[bytes]:
        """Encode samples; each item is one message. A part of a frame is kept for the next call.

        On an event loop use `steps`, which does the same in pieces below a millisecond.
        """
        return [message for step in self.steps(audio) for message in step]

    def steps(self, audio: MarkedAudio) -> Iterator[list[bytes]]:
        """Encode samples a message or so at a time, for callers that must not block for long.

        The iterator must be run to its end, or the encoder dropped.
        """
        self._check(audio)
        samples = audio.samples
        for start in range(0, len(samples), self._step):
            piece = samples[start : start + self._step]
            self.samples_in += len(piece)
            if self._gain != 1.0:
                piece = amplified(piece, self._gain)
            messages = self._encode(self._resampler.push(piece))
            if messages:
                yield messages

    def finish(self) -> list[bytes]:
        """Encode what is left, padded to a whole frame where the format has frames."""
        assert not self._finished, "an encoder is finished once"
        self._finished = True
        messages = self._encode(self._resampler.finish())
        if len(self._pending):
            last = self._pending
            self._pending = _EMPTY
            self.samples_out += len(last)
            if self._codec.pad_last:
                last = np.pad(last, (0, self._codec.frame_samples - len(last)))
            messages += self._codec.encode(last)
        return messages + self._codec.finish()

    def _check(self, audio: MarkedAudio) -> None:
        if not isinstance(audio, MarkedAudio):
            raise TypeError("only audio that went through the watermark stage may be encoded")
        if audio.sample_rate != self.source_rate:
            raise ValueError(
                f"this encoder takes {self.source_rate} Hz, not {audio.sample_rate} Hz"
            )
        assert not self._finished, "a finished encoder takes no more audio"

    def _encode(self, samples: FloatSamples) -> list[bytes]:
        pending = np.concatenate([self._pending, samples]) if len(self._pending) else samples
        size = self._codec.frame_samples
        whole = len(pending) - len(pending) % size
        packets: list[bytes] = []
        for start in range(0, whole, size):
            packets += self._codec.encode(pending[start : start + size])
        self._pending = pending[whole:].copy()
        self.samples_out += whole
        join = self._codec.join_frames
        if join == 1:
            return packets
        return [b"".join(packets[i : i + join]) for i in range(0, len(packets), join)]


def make_encoder(
    fmt: AudioFormat,
    rate: int,
    source_rate: int = 24000,
    *,
    bitrate: int | None = None,
    frame_ms: int = 20,
    message_ms: int = MESSAGE_MS,
    opus_backend: OpusBackend = OpusBackend.AV,
    opus_application: OpusApplication = OpusApplication.VOIP,
    opus_tuning: OpusTuning | None = None,
    gain_db: float = 0.0,
) -> Encoder:
    """Make the encoder of one turn.

    Args:
        fmt: output format.
        rate: output sample rate in Hz.
        source_rate: rate of the audio that will be encoded.
        bitrate: bits per second of a compressed format; None for a default that suits speech.
        frame_ms: frame of PCM, G.711 and raw Opus; the last is padded to it.
        message_ms: longest PCM or G.711 message; equal to `frame_ms` for messages of one length.
        opus_backend: binding of libopus for `opus_raw`.
        opus_application: libopus mode for `opus_raw`.
        opus_tuning: settings of `opus_raw` that may change while the turn is spoken.
        gain_db: added to the level; peaks are rounded off.

    Raises:
        InvalidRequest: the format does not exist at `rate` (`field` is `sample_rate`), or the bit
            rate cannot work (`field` is `bitrate`).
        InvalidConfiguration: the Opus back end is not usable here.
    """
    check_rate(fmt, rate)
    if bitrate is not None and not 6_000 <= bitrate <= 510_000:
        raise InvalidRequest(
            f"A bit rate of {bitrate} is outside 6000 to 510000 bits per second.",
            field="bitrate",
            limit="6000..510000",
        )
    codec: FrameCodec
    frame, join = rate * frame_ms // 1000, max(1, message_ms // frame_ms)
    if bitrate is None and opus_tuning is not None:
        bitrate = opus_tuning.bitrate
    bits = bitrate if bitrate is not None else DEFAULT_BITRATES.get(fmt)
    match fmt:
        case AudioFormat.PCM:
            codec = PcmCodec(frame, join)
        case AudioFormat.WAV:
            codec = WavCodec(frame, join, rate)
        case AudioFormat.ULAW:
            codec = UlawCodec(frame, join)
        case AudioFormat.ALAW:
            codec = AlawCodec(frame, join)
        case AudioFormat.OPUS_RAW:
            assert bits is not None
            codec = RawOpusCodec(
                rate,
                bitrate=bits,
                frame_ms=frame_ms,
                backend=opus_backend,
                application=opus_application,
                tuning=opus_tuning,
            )
        case AudioFormat.OPUS | AudioFormat.MP3 | AudioFormat.FLAC | AudioFormat.AAC:
            codec = ContainerCodec(fmt, rate, bitrate=bits)
    return Encoder(fmt, rate, source_rate, codec, gain_db)
