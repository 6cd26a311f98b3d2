"""Output formats: resampling, encoders, G.711 tables; and the decoder of files that people send."""

from antiphon.server.audio.decode import DecodedAudio, decode_audio
from antiphon.server.audio.encoder import Encoder, make_encoder
from antiphon.server.audio.formats import (
    CONTENT_TYPES,
    AudioFormat,
    check_rate,
    parse_format,
    rates_of,
)
from antiphon.server.audio.opus import OpusApplication, OpusBackend

__all__ = [
    "CONTENT_TYPES",
    "AudioFormat",
    "DecodedAudio",
    "Encoder",
    "OpusApplication",
    "OpusBackend",
    "check_rate",
    "decode_audio",
    "make_encoder",
    "parse_format",
    "rates_of",
]
