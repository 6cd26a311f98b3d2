"""The threads that speak, and who gets the next free one."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TypeVar

T = TypeVar("T")
A = TypeVar("A")


class Workers:
    """Runs work in threads: first that of sessions nobody has heard yet, each kind in order.

    Sessions speak ahead of their listeners, so without this a new caller would wait behind a clause
    of everybody else's.
    """

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="preset")
        self._free = threads
        self._arrivals = count()
        self._waiting: list[tuple[bool, int, asyncio.Future[None]]] = []

    async def run(self, work: Callable[[A], T], item: A, *, heard: bool) -> T:
        """Return `work(item)`; `heard` says whether the session has given out audio before."""
        await self._admitted(heard)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work, item)
        finally:
            self._free += 1
            self._admit()

    def close(self) -> None:
        """End the threads once what they are at is done."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _admitted(self, heard: bool) -> None:
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (heard, next(self._arrivals), turn))
        self._admit()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._free += 1
                self._admit()
            raise

    def _admit(self) -> None:
        while self._free and self._waiting:
            *_, turn = heapq.heappop(self._waiting)
            if not turn.done():
                self._free -= 1
                turn.set_result(None)
