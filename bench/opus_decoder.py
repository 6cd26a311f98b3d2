"""An Opus decoder that can be told to fill a hole from the packet behind it.

PyAV decodes, but does not pass that wish on; the libopus in its wheel takes it.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

import av
import numpy as np
from numpy.typing import NDArray


@cache
def _libopus() -> ctypes.CDLL:
    bundled = sorted(Path(av.__file__).parent.parent.glob("av.libs/libopus*"))
    path = str(bundled[0]) if bundled else ctypes.util.find_library("opus")
    if path is None:
        raise FileNotFoundError("libopus is neither in PyAV's wheel nor on the system")
    library = ctypes.CDLL(path)
    library.opus_decoder_create.restype = ctypes.c_void_p
    library.opus_decoder_create.argtypes = [
        ctypes.c_int32, ctypes.c_int, ctypes.POINTER(ctypes.c_int),
    ]  # fmt: skip
    library.opus_decode.argtypes = [
        ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int,
        ctypes.c_int,
    ]  # fmt: skip
    library.opus_decoder_destroy.argtypes = [ctypes.c_void_p]
    library.opus_decoder_destroy.restype = None
    return library


class OpusDecoder:
    """Decodes mono packets of one stream, for as long as the block lasts."""

    def __init__(self, rate: int, frame: int) -> None:
        """`frame` is the number of samples in a packet."""
        self._library = _libopus()
        error = ctypes.c_int()
        self._state = self._library.opus_decoder_create(rate, 1, ctypes.byref(error))
        if error.value:
            raise ValueError(f"libopus refuses {rate} Hz (error {error.value})")
        self._frame = frame

    def __enter__(self) -> Self:
        """Return the decoder."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Free it."""
        self._library.opus_decoder_destroy(self._state)

    def decode(self, packet: bytes) -> NDArray[np.int16]:
        """(frame,) samples of a packet."""
        return self._decode(packet, False)

    def fill(self, behind: bytes) -> NDArray[np.int16]:
        """(frame,) samples of the packet before `behind`, from the copy in it if it has one."""
        return self._decode(behind, True)

    def conceal(self) -> NDArray[np.int16]:
        """(frame,) samples of a packet of which nothing is known."""
        return self._decode(None, False)

    def _decode(self, packet: bytes | None, correct: bool) -> NDArray[np.int16]:
        samples = np.zeros(self._frame, dtype=np.int16)
        count = self._library.opus_decode(
            self._state, packet, len(packet or b""), samples.ctypes.data, self._frame, int(correct)
        )
        if count != self._frame:
            raise ValueError(f"libopus decoded {count} of {self._frame} samples")
        return samples
