"""The forms in which speech leaves the server, and the sample rates each exists at."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from antiphon.engine.errors import InvalidRequest


class AudioFormat(StrEnum):
    """Encoding and container of a stream of audio messages."""

    PCM = "pcm"
    """Signed 16-bit little-endian mono samples, no header."""
    WAV = "wav"
    """PCM behind a WAV header with open-ended sizes (0xFFFFFFFF)."""
    OPUS_RAW = "opus_raw"
    """One Opus packet a message, no container."""
    OPUS = "opus"
    """Opus in Ogg pages of one packet."""
    MP3 = "mp3"
    FLAC = "flac"
    AAC = "aac"
    """AAC-LC in ADTS."""
    ULAW = "ulaw"
    """G.711 µ-law, one byte a sample."""
    ALAW = "alaw"
    """G.711 A-law, one byte a sample."""


CONTENT_TYPES: Mapping[AudioFormat, str] = {
    AudioFormat.PCM: "audio/pcm",
    AudioFormat.WAV: "audio/wav",
    AudioFormat.OPUS_RAW: "audio/opus",
    AudioFormat.OPUS: "audio/ogg",
    AudioFormat.MP3: "audio/mpeg",
    AudioFormat.FLAC: "audio/flac",
    AudioFormat.AAC: "audio/aac",
    AudioFormat.ULAW: "audio/basic",
    AudioFormat.ALAW: "audio/x-alaw-basic",
}

PCM_RATES = frozenset({8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000})
OPUS_RATES = frozenset({8000, 12000, 16000, 24000, 48000})
"""RFC 6716, section 2: the only rates that Opus is defined at."""

DEFAULT_BITRATES: Mapping[AudioFormat, int] = {
    AudioFormat.OPUS_RAW: 32_000,
    AudioFormat.OPUS: 32_000,
    AudioFormat.MP3: 64_000,
    AudioFormat.AAC: 64_000,
}


def rates_of(fmt: AudioFormat) -> frozenset[int]:
    """Sample rates in Hz at which `fmt` is offered."""
    return OPUS_RATES if fmt in (AudioFormat.OPUS, AudioFormat.OPUS_RAW) else PCM_RATES


def parse_format(name: str) -> AudioFormat:
    """Find a format by name.

    Raises:
        InvalidRequest: no such format; `field` is `response_format`.
    """
    try:
        return AudioFormat(name)
    except ValueError:
        known = ", ".join(AudioFormat)
        raise InvalidRequest(
            f"Audio format {name[:40]!r} is not offered; choose one of {known}.",
            field="response_format",
            limit=known,
        ) from None


def check_rate(fmt: AudioFormat, rate: int) -> None:
    """Refuse a sample rate that `fmt` does not exist at.

    Raises:
        InvalidRequest: with `field` `sample_rate` and the allowed rates as `limit`.
    """
    allowed = rates_of(fmt)
    if rate not in allowed:
        listed = ", ".join(str(hz) for hz in sorted(allowed))
        raise InvalidRequest(
            f"The format {fmt.value} is not offered at {rate} Hz; choose one of {listed} Hz.",
            field="sample_rate",
            limit=listed,
        )
