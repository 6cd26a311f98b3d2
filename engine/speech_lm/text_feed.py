"""A request's text as it arrives, handed to its sequence when that asks for more."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from antiphon.engine.errors import AntiphonError, SynthesisFailed
from antiphon.engine.speech_lm.layout import Sequence as IdSequence

Ids = Sequence[int]
MAX_PIECES: Final = 256
"""Pieces that wait to be used; the source pauses beyond."""


class TextFeed:
    """Reads the source in a task of its own, so that early text is there when it is needed."""

    def __init__(
        self,
        sequence: IdSequence,
        text: Ids | AsyncIterator[Ids],
        check: Callable[[tuple[int, ...]], None],
    ) -> None:
        self.whole = not isinstance(text, AsyncIterator)
        self._sequence = sequence
        self._check = check
        self._pieces: asyncio.Queue[tuple[int, ...] | AntiphonError | None] = asyncio.Queue(
            MAX_PIECES
        )
        self._reader: asyncio.Task[None] | None = None
        self._ended = self.whole
        if isinstance(text, AsyncIterator):
            self._reader = asyncio.create_task(self._read(text))

    async def _read(self, text: AsyncIterator[Ids]) -> None:
        try:
            async for piece in text:
                ids = tuple(piece)
                self._check(ids)
                await self._pieces.put(ids)
        except AntiphonError as error:
            await self._pieces.put(error)
        except Exception as error:  # The caller's iterator may raise anything.
            message = f"The text source failed ({type(error).__name__})."
            await self._pieces.put(SynthesisFailed(message))
        else:
            await self._pieces.put(None)

    async def more(self) -> None:
        """Wait for a piece, or the end, and pass it on.

        Raises:
            AntiphonError: what the source raised.
        """
        self._pass_on(await self._pieces.get())
        self.drain()

    def drain(self) -> None:
        """Pass on what has arrived, without waiting."""
        while not self._ended and not self._pieces.empty():
            self._pass_on(self._pieces.get_nowait())

    def _pass_on(self, piece: tuple[int, ...] | AntiphonError | None) -> None:
        if isinstance(piece, AntiphonError):
            raise piece
        if piece is None:
            self._ended = True
            self._sequence.end_text()
        elif piece:
            self._sequence.push_text(piece)

    async def close(self) -> None:
        """Stop reading."""
        if self._reader is not None:
            self._reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reader
