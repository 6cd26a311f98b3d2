"""Raw Opus packets by either of two bindings of libopus.

`av` (the default) brings its own libopus; `opuslib` uses the system's. Both write 20 ms packets,
mono, in the `voip` mode, the only one with in-band error correction. Complexity 5 costs about a
quarter of a millisecond a packet on one old core, half of what 10 costs, so that encoding on the
event loop stays below a millisecond.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any, Protocol

import av
import numpy as np

from antiphon.engine.errors import InvalidConfiguration
from antiphon.engine.watermark.marked import FloatSamples

COMPLEXITY = 5
_MAX_PACKET_BYTES = 1275
"""RFC 6716, section 3.2.1: longest frame."""


class OpusBackend(StrEnum):
    """Which binding of libopus encodes."""

    AV = "av"
    OPUSLIB = "opuslib"


class OpusApplication(StrEnum):
    """What libopus optimises for."""

    VOIP = "voip"
    """Speech; 6.5 ms inside the codec; in-band error correction is possible."""
    LOW_DELAY = "lowdelay"
    """2.5 ms inside the codec, no error correction, worse at low bit rates."""


@dataclass(slots=True)
class OpusTuning:
    """What a running stream of packets may be told to change; read before each frame."""

    bitrate: int | None = None
    loss_percent: int = 0
    """Packets that the listener loses; above 0 each packet carries a poor copy of the one before,
    from which a decoder fills a hole (in-band error correction)."""


class OpusEncoder(Protocol):
    """Frames of equal length in, one packet out for each, and the codec's delay at the end."""

    lookahead_samples: int
    """Delay of the codec: a decoder's output is late by that many samples."""

    def encode(self, frame: FloatSamples) -> list[bytes]:
        """Encode one frame of 2.5 to 60 ms, always of the same length."""

    def expect_loss(self, percent: int) -> None:
        """Turn in-band error correction on (above 0) or off, from the next frame on."""

    def finish(self) -> list[bytes]:
        """Push the codec's delay out with silence."""


class AvOpusEncoder:
    """libopus inside PyAV's wheel."""

    def __init__(
        self,
        rate: int,
        *,
        bitrate: int,
        frame_ms: int = 20,
        application: OpusApplication = OpusApplication.VOIP,
        packet_loss_percent: int = 0,
    ) -> None:
        self.rate = rate
        self._bitrate = bitrate
        self._frame_ms = frame_ms
        self._application = application
        self._last: FloatSamples | None = None
        self._open(packet_loss_percent)

    def _open(self, packet_loss_percent: int) -> None:
        rate = self.rate
        self._pts = 0
        codec = av.CodecContext.create("libopus", "w")
        assert isinstance(codec, av.AudioCodecContext)
        codec.sample_rate = rate
        codec.layout = "mono"
        codec.format = "flt"
        codec.bit_rate = self._bitrate
        codec.time_base = Fraction(1, rate)
        codec.options = {
            "application": self._application.value,
            "frame_duration": str(self._frame_ms),
            "compression_level": str(COMPLEXITY),
            "fec": "1" if packet_loss_percent else "0",
            "packet_loss": str(packet_loss_percent),
        }
        codec.open()
        self._codec = codec
        head = codec.extradata
        assert head is not None
        assert head.startswith(b"OpusHead")
        pre_skip_48k = int.from_bytes(head[10:12], "little")
        self.lookahead_samples = pre_skip_48k * rate // 48000

    def encode(self, frame: FloatSamples) -> list[bytes]:
        """Encode one frame; the packet comes out at once."""
        audio = av.AudioFrame.from_ndarray(
            np.ascontiguousarray(frame, dtype=np.float32)[None], format="flt", layout="mono"
        )
        audio.sample_rate = self.rate
        audio.pts = self._pts
        self._pts += len(frame)
        self._last = frame
        return [bytes(packet) for packet in self._codec.encode(audio)]

    def expect_loss(self, percent: int) -> None:
        """Go on with a new encoder, since libav takes this setting only when one is opened.

        It hears the last frame first, so that the samples delayed inside the codec are the same
        in both and the listener hears no seam.
        """
        last = self._last
        self._open(percent)
        if last is not None:
            self.encode(last)

    def finish(self) -> list[bytes]:
        """Return the last packet, which holds the codec's delay."""
        return [bytes(packet) for packet in self._codec.encode(None)] if self._pts else []


class OpuslibEncoder:
    """The system's libopus through `opuslib` (version 3.0.1)."""

    def __init__(
        self,
        rate: int,
        *,
        bitrate: int,
        frame_ms: int = 20,
        application: OpusApplication = OpusApplication.VOIP,
        packet_loss_percent: int = 0,
    ) -> None:
        api, constants = _opuslib()
        ctl = api.ctl
        kind = (
            constants.APPLICATION_VOIP
            if application is OpusApplication.VOIP
            else constants.APPLICATION_RESTRICTED_LOWDELAY
        )
        self._api: Any = api.encoder
        self._state = self._api.create_state(rate, 1, kind)
        # The package's own property setters for these raise TypeError, the control call works.
        for request, value in (
            (ctl.set_bitrate, bitrate),
            (ctl.set_complexity, COMPLEXITY),
        ):
            self._api.encoder_ctl(self._state, request, value)
        self._ctl = ctl
        self.expect_loss(packet_loss_percent)
        self.lookahead_samples = int(self._api.encoder_ctl(self._state, ctl.get_lookahead))
        self._frame_samples = rate * frame_ms // 1000
        self._used = False

    def encode(self, frame: FloatSamples) -> list[bytes]:
        """Encode one frame; the packet comes out at once."""
        self._used = True
        data = np.ascontiguousarray(frame, dtype=np.float32).tobytes()
        return [self._api.encode_float(self._state, data, len(frame), _MAX_PACKET_BYTES)]

    def expect_loss(self, percent: int) -> None:
        """Change the running encoder."""
        self._api.encoder_ctl(self._state, self._ctl.set_inband_fec, int(percent > 0))
        self._api.encoder_ctl(self._state, self._ctl.set_packet_loss_perc, percent)

    def finish(self) -> list[bytes]:
        """Return the last packet, which holds the codec's delay."""
        if not self._used:
            return []
        return self.encode(np.zeros(self._frame_samples, dtype=np.float32))

    def __del__(self) -> None:
        state = getattr(self, "_state", None)
        if state is not None:
            self._api.destroy(state)


def _opuslib() -> tuple[Any, Any]:
    """The binding's low-level functions and its constants.

    Raises:
        InvalidConfiguration: the package or the system library is missing.
    """
    try:
        importlib.import_module("opuslib.api.encoder")
        return importlib.import_module("opuslib.api"), importlib.import_module("opuslib")
    except Exception as error:
        # Without the system library the package raises a bare Exception.
        raise InvalidConfiguration(
            "The Opus back end 'opuslib' needs the package opuslib and the system's libopus; "
            "install both or choose 'av'.",
            field="opus_backend",
        ) from error


def opus_encoder(
    rate: int,
    *,
    bitrate: int,
    frame_ms: int = 20,
    backend: OpusBackend = OpusBackend.AV,
    application: OpusApplication = OpusApplication.VOIP,
    packet_loss_percent: int = 0,
) -> OpusEncoder:
    """Make an encoder of one mono stream at `rate` Hz.

    `packet_loss_percent` above 0 turns in-band error correction on, at the cost of some bits.

    Raises:
        InvalidConfiguration: `backend` is not usable on this machine.
    """
    kind = AvOpusEncoder if backend is OpusBackend.AV else OpuslibEncoder
    return kind(
        rate,
        bitrate=bitrate,
        frame_ms=frame_ms,
        application=application,
        packet_loss_percent=packet_loss_percent,
    )
