"""Where speech tokens wait for their hop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from types import TracebackType

TOKENS_AHEAD = 250
"""Ten seconds: the LM rests when so many tokens wait, so that a cancelled turn wastes little."""


class TokenBuffer:
    """Drains an iterator of speech tokens in a task of its own, so that the LM works while the
    flow does.

    Use as an async context manager: leaving it cancels the task and closes the iterator. An error
    of the iterator is raised by `wait_for`, after the tokens before it were taken.
    """

    def __init__(self, tokens: AsyncGenerator[int, None], *, limit: int = TOKENS_AHEAD) -> None:
        self._source = tokens
        self._limit = limit
        self._waiting: deque[int] = deque()
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
            async for token in self._source:
                self._waiting.append(token)
                self._changed.set()
                while len(self._waiting) >= self._limit:
                    self._room.clear()
                    await self._room.wait()
        except Exception as error:
            self._error = error
        finally:
            self._ended = True
            self._changed.set()
            await self._source.aclose()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def exhausted(self) -> bool:
        """Whether no token will follow those that wait."""
        return self._ended and self._error is None

    async def wait_for(self, count: int, patience_s: float | None) -> None:
        """Return when `count` tokens wait, none will follow, or `patience_s` seconds are over.

        Raises:
            Exception: what the iterator raised, once fewer than `count` tokens wait.
        """
        count = min(count, self._limit)
        try:
            async with asyncio.timeout(patience_s):
                while len(self._waiting) < count and not self._ended:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return
        if self._error is not None and len(self._waiting) < count:
            raise self._error

    def take(self, count: int) -> list[int]:
        """Remove and return up to `count` tokens."""
        taken = [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]
        self._room.set()
        return taken
