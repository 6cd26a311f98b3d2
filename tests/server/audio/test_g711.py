"""G.711: every one of the 65,536 samples, both laws, both ways."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from antiphon.server.audio.g711 import decode_alaw, decode_ulaw, encode_alaw, encode_ulaw

SAMPLES = np.arange(-32768, 32768, dtype=np.int32).astype(np.int16)
CODES = bytes(range(256))


def test_bit_exact_with_the_standard_library() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        audioop = pytest.importorskip("audioop", reason="audioop left Python in 3.13")
    linear = SAMPLES.astype("<i2").tobytes()
    assert encode_ulaw(SAMPLES) == audioop.lin2ulaw(linear, 2)
    assert encode_alaw(SAMPLES) == audioop.lin2alaw(linear, 2)
    assert decode_ulaw(CODES).astype("<i2").tobytes() == audioop.ulaw2lin(CODES, 2)
    assert decode_alaw(CODES).astype("<i2").tobytes() == audioop.alaw2lin(CODES, 2)


def test_known_codes() -> None:
    # ITU-T G.711: silence is 0xFF in µ-law and 0xD5 in A-law, full scale 0x80 and 0xAA.
    values = np.array([0, 32767, -32768], dtype=np.int16)
    assert encode_ulaw(values) == bytes([0xFF, 0x80, 0x00])
    assert encode_alaw(values) == bytes([0xD5, 0xAA, 0x2A])


@pytest.mark.parametrize(
    ("encode", "decode"), [(encode_ulaw, decode_ulaw), (encode_alaw, decode_alaw)]
)
def test_codes_survive_decoding(encode, decode) -> None:  # type: ignore[no-untyped-def]
    codes = encode(decode(CODES))
    # µ-law has two zeros; the negative one comes back as the positive.
    changed = [code for code, back in zip(CODES, codes, strict=True) if code != back]
    assert changed in ([], [0x7F])


def test_the_error_stays_below_half_a_step() -> None:
    for encode, decode in ((encode_ulaw, decode_ulaw), (encode_alaw, decode_alaw)):
        back = decode(encode(SAMPLES)).astype(np.int32)
        error = np.abs(back - SAMPLES.astype(np.int32))
        allowed = np.maximum(np.abs(SAMPLES.astype(np.int32)) / 32 + 8, 16)
        inside = np.abs(SAMPLES.astype(np.int32)) <= 32635
        assert (error <= allowed)[inside].all()
