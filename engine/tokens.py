"""Where speech tokens wait for their hop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from enum import Enum
from types import TracebackType
from typing import NamedTuple

TOKENS_AHEAD = 250
"""Ten seconds: the LM rests when so many tokens wait, so that a cancelled turn wastes little."""


class SegmentMark(Enum):
    """Stands between speech tokens where one LM request begins or ends."""

    BEGIN = "begin"
    END = "end"
    FLUSH = "flush"
    """An end at which the caller wants all before it spoken now."""


class Border(Enum):
    """What follows the tokens taken."""

    NONE = "none"
    """More of the same segment."""
    SEGMENT = "segment"
    """Nothing yet; the text so far is spoken, and more may come."""
    FLUSH = "flush"
    TURN = "turn"
    """Nothing will."""


class Taken(NamedTuple):
    """Tokens and what follows them."""

    tokens: list[int]
    border: Border


class TokenBuffer:
    """Drains an iterator of speech tokens in a task of its own, so that the LM works while the
    flow does.

    Use as an async context manager: leaving it cancels the task and closes the iterator. An error
    of the iterator is raised by `wait_for`, after the tokens before it were taken.
    """

    def __init__(
        self, source: AsyncGenerator[int | SegmentMark, None], *, limit: int = TOKENS_AHEAD
    ) -> None:
        self._source = source
        self._limit = limit
        self._waiting: deque[int | SegmentMark] = deque()
        self._tokens = 0
        self._flushes = 0
        self._resting = False
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._error: Exception | None = None
        self._ended = False

    async def __aenter__(self) -> TokenBuffer:
        self._task = asyncio.create_task(self._fill())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _fill(self) -> None:
        try:
            async for item in self._source:
                self._put(item)
                while self._tokens >= self._limit:
                    self._room.clear()
                    await self._room.wait()
        except Exception as error:
            self._error = error
        finally:
            self._ended = True
            self._changed.set()
            await self._source.aclose()

    def _put(self, item: int | SegmentMark) -> None:
        self._resting = item in (SegmentMark.END, SegmentMark.FLUSH)
        self._flushes += item is SegmentMark.FLUSH
        self._tokens += isinstance(item, int)
        self._waiting.append(item)
        self._changed.set()

    def __len__(self) -> int:
        return self._tokens

    async def wait_for(
        self, count: int, patience_s: float | None = None, *, or_rest: bool = False
    ) -> None:
        """Return when `count` tokens or a flush wait, none will follow, or patience is over.

        With `or_rest` also when the LM has spoken all of its text, though more may come.

        Raises:
            Exception: what the iterator raised, once fewer than `count` tokens wait.
        """
        count = min(count, self._limit)
        try:
            async with asyncio.timeout(patience_s):
                while self._tokens < count and not self._final(or_rest):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return
        if self._error is not None and self._tokens < count and not self._flushes:
            raise self._error

    def _final(self, or_rest: bool) -> bool:
        return self._ended or self._flushes > 0 or (or_rest and self._resting)

    def take(self, count: int) -> Taken:
        """Remove and return up to `count` tokens, none from behind a flush."""
        tokens: list[int] = []
        border = None
        while self._waiting and border is None:
            item = self._waiting[0]
            if isinstance(item, int):
                if len(tokens) == count:
                    break
                tokens.append(item)
            elif item is SegmentMark.FLUSH:
                self._flushes -= 1
                border = Border.FLUSH
            self._waiting.popleft()
        self._tokens -= len(tokens)
        self._room.set()
        return Taken(tokens, border or self._border())

    def _border(self) -> Border:
        if self._waiting:
            return Border.NONE
        if self._ended and self._error is None:
            return Border.TURN
        return Border.SEGMENT if self._resting else Border.NONE
