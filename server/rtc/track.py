"""The audio track of a call: packets encoded when the speech was made, sent by a clock."""

from __future__ import annotations

import asyncio
import time
from fractions import Fraction
from functools import cache
from typing import Any

import av
import numpy as np
from aiortc import MediaStreamTrack
from aiortc.mediastreams import MediaStreamError

from antiphon.server.audio.opus import opus_encoder
from antiphon.server.calls.call import Call
from antiphon.server.calls.playout import PREROLL, FrameFormat, MediaClock

OPUS_RATE = 24_000
"""Hz of what is encoded: the engines' own rate, so that nothing is resampled."""
_RTP_CLOCK = 48_000
"""Opus' media clock always runs at 48 kHz (RFC 7587, section 4.1)."""
_TICK = _RTP_CLOCK // 50
_TIME_BASE = Fraction(1, _RTP_CLOCK)
_WARM_UP_FRAMES = 5
"""Frames until an encoder's answer to silence no longer changes."""


@cache
def opus_frames(bitrate: int) -> FrameFormat:
    """Frames of Opus packets, with a packet of encoded silence."""
    encoder = opus_encoder(OPUS_RATE, bitrate=bitrate)
    quiet = np.zeros(OPUS_RATE // 50, dtype=np.float32)
    packets = [packet for _ in range(_WARM_UP_FRAMES) for packet in encoder.encode(quiet)]
    return FrameFormat(silence=packets[-1], preroll=PREROLL)


class CallTrack(MediaStreamTrack):
    """What the browser hears: a packet each 20 ms from connect to close.

    aiortc sends what `recv` returns at once, and only asks once the connection stands, so the
    clock starts with the first call.
    """

    kind = "audio"

    def __init__(self, call: Call) -> None:
        super().__init__()
        self._call = call
        self._clock: MediaClock | None = None

    async def recv(self) -> av.Packet[Any]:
        """The next packet, when it is due."""
        if self.readyState != "live":
            raise MediaStreamError
        if self._clock is None:
            self._clock = MediaClock(time.monotonic())
        tick, wait_s = self._clock.next(time.monotonic())
        if wait_s:
            await asyncio.sleep(wait_s)
        self._call.ticked(self._clock)
        packet = av.Packet(self._call.frame_or_silence())
        packet.pts = packet.dts = tick * _TICK
        packet.time_base = _TIME_BASE
        return packet
