"""How much of a turn's audio is under way to a client that has not read it yet."""

from __future__ import annotations

import asyncio

from antiphon.server.transport import Flow, slow_reader

_RECEIPT_EVERY_S = 0.25
"""Audio between two read receipts. Smaller is more exact and costs a ping frame each."""


class ReadingWindow:
    """Seconds sent and seconds known to be read, of one turn."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._sent_s = 0.0
        self._marked_s = 0.0
        self._read_s = 0.0
        self._changed = asyncio.Event()

    @property
    def unread_s(self) -> float:
        """Audio sent and not known to be read."""
        return self._sent_s - self._read_s

    def sent(self, seconds: float) -> None:
        """Account for audio handed to the transport; asks for a receipt now and then."""
        self._sent_s += seconds
        if self._sent_s - self._marked_s >= _RECEIPT_EVERY_S:
            self._mark()

    async def room(self, limit_s: float, patience_s: float) -> None:
        """Wait until less than `limit_s` is unread.

        Raises:
            SlowReader: nothing more was read for `patience_s`.
        """
        while self.unread_s >= limit_s:
            if self._marked_s < self._sent_s:
                self._mark()
            self._changed.clear()
            try:
                async with asyncio.timeout(patience_s):
                    await self._changed.wait()
            except TimeoutError:
                raise slow_reader(patience_s) from None

    def _mark(self) -> None:
        at = self._marked_s = self._sent_s

        def read() -> None:
            self._read_s = max(self._read_s, at)
            self._changed.set()

        self._flow.when_read(read)
