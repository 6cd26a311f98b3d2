"""The way back: messages of one turn, as a client receives them, to samples."""

from __future__ import annotations

from collections.abc import Sequence

import av
import numpy as np

from antiphon.engine.audio_file import decode_audio
from antiphon.engine.watermark.marked import FloatSamples
from antiphon.server.audio.formats import AudioFormat
from antiphon.server.audio.g711 import decode_alaw, decode_ulaw
from antiphon.server.audio.samples import from_pcm, to_float


def decode_messages(
    fmt: AudioFormat, rate: int, messages: Sequence[bytes]
) -> tuple[FloatSamples, int]:
    """Samples of a whole turn, and their rate.

    Opus comes back at 48 kHz, whatever `rate` it was made from. Padding and codec delay are
    still there.

    Raises:
        InvalidRequest: the messages are not of that format.
    """
    data = b"".join(messages)
    if not data:
        return np.zeros(0, dtype=np.float32), rate
    match fmt:
        case AudioFormat.PCM:
            return from_pcm(data), rate
        case AudioFormat.ULAW:
            return to_float(decode_ulaw(data)), rate
        case AudioFormat.ALAW:
            return to_float(decode_alaw(data)), rate
        case AudioFormat.OPUS_RAW:
            return decode_opus(messages), 48000
        case _:
            decoded = decode_audio(data, max_seconds=3600.0)
            return decoded.samples, decoded.rate


def decode_opus(packets: Sequence[bytes]) -> FloatSamples:
    """Samples at 48 kHz of raw mono Opus packets in order."""
    codec = av.CodecContext.create("libopus", "r")
    assert isinstance(codec, av.AudioCodecContext)
    codec.sample_rate = 48000
    codec.layout = "mono"
    codec.open()
    parts = [
        to_float(frame.to_ndarray()[0])
        for packet in packets
        for frame in codec.decode(av.Packet(packet))
    ]
    return np.concatenate(parts)
