from __future__ import annotations

import asyncio
import threading

import pytest

from antiphon.engine.preset.workers import Workers


async def test_who_was_not_heard_yet_goes_first() -> None:
    workers, gate, order = Workers(1), threading.Event(), list[str]()
    busy = asyncio.create_task(workers.run(lambda _: gate.wait(10), None, heard=True))
    jobs = []
    for name, heard in (
        ("later a", True),
        ("first a", False),
        ("later b", True),
        ("first b", False),
    ):
        jobs.append(asyncio.create_task(workers.run(order.append, name, heard=heard)))
        await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(busy, *jobs)
    assert order == ["first a", "first b", "later a", "later b"]
    workers.close()


async def test_who_leaves_gives_the_thread_back() -> None:
    workers, gate = Workers(1), threading.Event()
    busy = asyncio.create_task(workers.run(lambda _: gate.wait(10), None, heard=True))
    gone = [asyncio.create_task(workers.run(str, each, heard=False)) for each in range(3)]
    await asyncio.sleep(0)
    for task in gone:
        task.cancel()
    await asyncio.gather(*gone, return_exceptions=True)
    gate.set()
    await busy
    assert await workers.run(str, 7, heard=True) == "7"
    workers.close()


async def test_who_leaves_just_when_admitted_gives_the_thread_back() -> None:
    workers = Workers(1)
    task = asyncio.create_task(workers.run(str, 1, heard=False))
    await asyncio.sleep(0)  # admitted at once, not run yet
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await workers.run(str, 2, heard=False) == "2"
    workers.close()


async def test_a_fault_gives_the_thread_back() -> None:
    workers = Workers(1)
    with pytest.raises(ValueError, match="x"):
        await workers.run(int, "x", heard=False)
    assert await workers.run(int, "3", heard=False) == 3
    workers.close()
