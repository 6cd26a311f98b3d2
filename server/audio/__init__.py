"""Output formats: resampling, encoders, G.711 tables."""

from antiphon.server.audio.encoder import Encoder, make_encoder
from antiphon.server.audio.formats import (
    CONTENT_TYPES,
    AudioFormat,
    check_rate,
    parse_format,
    rates_of,
)
from antiphon.server.audio.opus import OpusApplication, OpusBackend, OpusTuning

__all__ = [
    "CONTENT_TYPES",
    "AudioFormat",
    "Encoder",
    "OpusApplication",
    "OpusBackend",
    "OpusTuning",
    "check_rate",
    "make_encoder",
    "parse_format",
    "rates_of",
]
