"""What travels on phone lines: forms of 20 ms, and the caller's bytes to samples."""

from __future__ import annotations

from antiphon.engine.errors import InvalidRequest
from antiphon.engine.watermark.marked import FloatSamples
from antiphon.server.audio import AudioFormat, check_rate
from antiphon.server.audio.g711 import decode_alaw, decode_ulaw
from antiphon.server.audio.samples import from_pcm, to_float
from antiphon.server.calls.playout import FrameFormat

_SILENCE = {AudioFormat.ULAW: b"\xff", AudioFormat.ALAW: b"\xd5", AudioFormat.PCM: b"\0\0"}


def phone_frames(audio: AudioFormat, rate: int, *, preroll: int = 0) -> FrameFormat:
    """Frames of 20 ms.

    Raises:
        InvalidRequest: the rate is not offered.
    """
    check_rate(audio, rate)
    sample = _SILENCE[audio]
    count = rate // 50
    return FrameFormat(silence=sample * count, frame_bytes=len(sample) * count, preroll=preroll)


def to_samples(audio: AudioFormat, data: bytes) -> FloatSamples:
    """Samples of what a caller said.

    Raises:
        InvalidRequest: half a sample.
    """
    if audio is AudioFormat.ULAW:
        return to_float(decode_ulaw(data))
    if audio is AudioFormat.ALAW:
        return to_float(decode_alaw(data))
    if len(data) % 2:
        raise InvalidRequest("The audio ends in the middle of a sample.", field="media")
    return from_pcm(data)
