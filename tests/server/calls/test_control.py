"""The control leg's mailbox, and calls when the server drains."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.server.calls.control import Mailbox
from antiphon.server.errors import NotReady
from tests.server.harness import serving
from tests.server.phone.peer import agent_of, phone_call, wait_for_calls


async def test_messages_come_out_in_order_and_the_end_is_told() -> None:
    mailbox = Mailbox()
    for message in ("one", b"two", "three"):
        mailbox(message)
    mailbox.close()
    assert [await mailbox.take() for _ in range(4)] == ["one", b"two", "three", None]


async def test_audio_that_nobody_takes_is_dropped_from_its_old_end() -> None:
    mailbox = Mailbox()
    mailbox("before")
    for i in range(80):
        mailbox(bytes([i]))
    mailbox("after")
    mailbox.close()
    taken = []
    while (message := await mailbox.take()) is not None:
        taken.append(message)
    assert taken[0] == "before"
    assert taken[-1] == "after"
    assert taken[1:-1] == [bytes([i]) for i in range(30, 80)]


async def test_texts_that_nobody_takes_end_the_leg() -> None:
    mailbox = Mailbox()
    for i in range(2_000):
        mailbox(str(i))
    assert mailbox.overflowed
    assert await asyncio.wait_for(mailbox.take(), 1) is None


async def test_a_draining_server_lets_calls_finish_and_takes_no_more() -> None:
    async with serving() as server, phone_call(server) as phone, agent_of(server) as agent:
        await agent.send("input.text", text="one two three ")
        await agent.send("input.done")
        await agent.until("progress")
        draining = asyncio.create_task(server.house.drain())
        done = await agent.until("session.done")
        assert (done["finish_reason"], done["samples"]) == ("stop", 4800)
        await asyncio.wait_for(draining, 5)
        await asyncio.wait_for(phone.socket.wait_closed(), 5)
        assert len(phone.samples) == 4800
        with pytest.raises(NotReady):
            server.house.check_open()
        await wait_for_calls(server, 0)
