"""Sound, where there is a device."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import queue
import threading
from typing import Any


class Player:
    """Plays 16-bit PCM on the default sound device, from a thread of its own."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="player", daemon=True)
        self._thread.start()

    def play(self, pcm: bytes) -> None:
        """Add audio; never blocks."""
        self._queue.put(pcm)

    def close(self) -> None:
        """Wait until all has been played."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        with self._stream as stream:
            while (pcm := self._queue.get()) is not None:
                stream.write(pcm)


def open_player(sample_rate: int) -> Player | None:
    """A player, or None where the package `sounddevice` or a sound device is missing."""
    if importlib.util.find_spec("sounddevice") is None:
        return None
    # The package raises OSError without the PortAudio library and its own error without a device.
    with contextlib.suppress(OSError, RuntimeError):
        sounddevice = importlib.import_module("sounddevice")
        try:
            return Player(
                sounddevice.RawOutputStream(samplerate=sample_rate, channels=1, dtype="int16")
            )
        except sounddevice.PortAudioError:
            return None
    return None
