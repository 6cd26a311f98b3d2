"""What the sessions of every engine share: the text that waits, and what cancelling means."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

from antiphon.engine.interface import FinishReason, SpeechAudio, SpeechEvent, SpeechFinished


class Flush:
    """Stands between texts: what came before is to be spoken now."""


FLUSH: Final = Flush()


class TextQueue:
    """Text on its way to the front end, bounded in characters. One writer, one reader."""

    def __init__(self, limit_characters: int) -> None:
        self._limit = limit_characters
        self._items: deque[str | Flush] = deque()
        self._characters = 0
        self._ended = False
        self._closed = False
        self._changed = asyncio.Event()
        self._room = asyncio.Event()

    @property
    def characters(self) -> int:
        """Characters that wait."""
        return self._characters

    async def put(self, text: str) -> None:
        """Add text, piece by piece where it is longer than the queue; waits for room."""
        assert self._closed or not self._ended, "text after the end of the text"
        for start in range(0, len(text), self._limit):
            piece = text[start : start + self._limit]
            while self._characters + len(piece) > self._limit and not self._closed:
                self._room.clear()
                await self._room.wait()
            if self._closed:
                return
            self._items.append(piece)
            self._characters += len(piece)
            self._changed.set()

    def flush(self) -> None:
        """Mark that what was put so far is to be spoken now."""
        if self._items and self._items[-1] is FLUSH:
            return
        self._items.append(FLUSH)
        self._changed.set()

    def end(self) -> None:
        """No more text will come."""
        self._ended = True
        self._changed.set()

    def close(self) -> None:
        """Drop what waits and let go of a writer: the turn is over."""
        self._closed = self._ended = True
        self._items.clear()
        self._characters = 0
        self._room.set()
        self._changed.set()

    def __aiter__(self) -> AsyncIterator[str | Flush]:
        return self

    async def __anext__(self) -> str | Flush:
        while not self._items:
            if self._ended:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        item = self._items.popleft()
        if isinstance(item, str):
            self._characters -= len(item)
            self._room.set()
        return item


class Turn(ABC):
    """Turns an engine's chain of stages into `SpeechSession.events` and `cancel`.

    Each event is pulled in a task, so that a cancel from elsewhere reaches the stage that is
    waiting, whichever it is, and unwinds the chain through its `finally` blocks.
    """

    def __init__(self) -> None:
        self._samples = 0
        self._cancelled = False
        self._chain: AsyncGenerator[SpeechEvent, None] | None = None
        self._pull: asyncio.Task[SpeechEvent] | None = None
        self._closing = asyncio.Lock()

    @abstractmethod
    def _events(self) -> AsyncGenerator[SpeechEvent, None]:
        """Return the engine's own chain, ending with `SpeechFinished`."""

    async def events(self) -> AsyncGenerator[SpeechEvent, None]:
        """Yield audio and progress, ending with `SpeechFinished`.

        Raises:
            SynthesisFailed: while speaking.
        """
        assert self._chain is None, "the events of a turn are read once"
        self._chain = chain = self._events()
        try:
            while not self._cancelled:
                self._pull = asyncio.ensure_future(anext(chain))
                try:
                    event = await self._pull
                except asyncio.CancelledError:
                    if self._cancelled:
                        break
                    raise
                except StopAsyncIteration:
                    return
                finally:
                    self._pull = None
                if self._cancelled:
                    break
                if isinstance(event, SpeechAudio):
                    self._samples += len(event.audio)
                yield event
            yield SpeechFinished(FinishReason.CANCELLED, self._samples)
        finally:
            await self._close()

    async def cancel(self) -> None:
        """Stop all work of this turn and free what it holds. Idempotent."""
        self._cancelled = True
        if self._pull is not None:
            self._pull.cancel()
            await asyncio.gather(self._pull, return_exceptions=True)
        await self._close()

    async def _close(self) -> None:
        # The reader of `events` and a canceller may both get here; a generator closes once.
        async with self._closing:
            if self._chain is not None:
                await self._chain.aclose()
