"""Holes are filled from the packet behind them, where the encoder was told of losses."""

from __future__ import annotations

import numpy as np
import pytest

from antiphon.server.audio.opus import AvOpusEncoder, OpusApplication
from bench.calls_loss import corrects, decode
from bench.opus_decoder import OpusDecoder

RATE, FRAME = 48_000, 960
HOLES = range(10, 90, 4)


def packets(loss_percent: int, application: OpusApplication = OpusApplication.VOIP) -> list[bytes]:
    """Two seconds of a voice-like sound whose pitch and vowel change all the time."""
    time_s = np.arange(2 * RATE) / RATE
    phase = 2 * np.pi * np.cumsum(140 + 40 * np.sin(2 * np.pi * 1.3 * time_s)) / RATE
    harmonics = range(1, 20)
    formant = 5 + 4 * np.sin(2 * np.pi * 2.1 * time_s)
    voice = sum(np.exp(-(((k - formant) / 3) ** 2)) * np.sin(k * phase) for k in harmonics)
    samples = (0.1 * voice).astype(np.float32)
    encoder = AvOpusEncoder(
        RATE, bitrate=32_000, application=application, packet_loss_percent=loss_percent
    )
    return [
        p for at in range(0, len(samples), FRAME) for p in encoder.encode(samples[at : at + FRAME])
    ]


def holed(whole: list[bytes]) -> list[bytes | None]:
    return [None if i in HOLES else packet for i, packet in enumerate(whole)]


def wrong(whole: list[bytes], *, correct: bool) -> float:
    """Energy of what differs from a decoding without holes, as a share of its own."""
    before = decode(list(whole), correct=False)
    after = decode(holed(whole), correct=correct)
    return float(np.sum((after - before) ** 2) / np.sum(before**2))


def test_copies_fill_holes_better_than_guesses() -> None:
    whole = packets(20)
    # The encoder leaves out what a guess does as well.
    assert sum(corrects(whole[i + 1]) for i in HOLES) > len(HOLES) / 2
    assert wrong(whole, correct=True) < 0.5 * wrong(whole, correct=False)


@pytest.mark.parametrize(
    ("loss_percent", "application"),
    [(0, OpusApplication.VOIP), (20, OpusApplication.LOW_DELAY)],
)
def test_without_them_there_is_nothing_to_fill_from(
    loss_percent: int, application: OpusApplication
) -> None:
    whole = packets(loss_percent, application)
    assert not any(map(corrects, whole))
    assert wrong(whole, correct=True) == pytest.approx(wrong(whole, correct=False), rel=0.05)


def test_garbage_and_odd_rates_are_refused() -> None:
    with OpusDecoder(RATE, FRAME) as decoder, pytest.raises(ValueError, match="samples"):
        decoder.decode(b"\xff" * 3)
    with pytest.raises(ValueError, match="44100"):
        OpusDecoder(44_100, 882)
