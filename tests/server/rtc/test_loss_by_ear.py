"""What a listener understands when one packet in twenty is lost on the way (`bench.calls_loss`)."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from bench.calls_loss import corrects, error_percent, filled_percent, lossy_call, speak
from bench.calls_server import ServerProcess, server_process
from bench.speech import sentences
from tests.server.harness import PATIENCE_S

CALLS = 4
SENTENCES = 12
"""About 170 words: three points are five of them."""

Said = list[list[bytes | None]]


async def spoken(loss: float) -> tuple[list[str], Said, Said, list[int]]:
    """The sentences; what arrived of them without losses and with; the encoders' settings.

    Several calls at once, each with its share of the sentences, because a call takes as long as
    its speech.
    """
    texts = sentences(SENTENCES)
    shares = [texts[i::CALLS] for i in range(CALLS)]

    async def without(server: ServerProcess, share: list[str]) -> Said:
        async with lossy_call(server) as (call, _, received):
            return await speak(server, call, share, received)

    async def with_losses(server: ServerProcess, share: list[str]) -> tuple[Said, int]:
        async with lossy_call(server) as (call, back, received):
            back.loss = loss
            await speak(server, call, share[:2], received)  # until reports have come
            said = await speak(server, call, share, received)
            async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
                listed = (await http.get(f"{server.url}/v1/calls")).json()["calls"]
            return said, next(each["loss_percent"] for each in listed if each["id"] == call)

    with server_process("live") as server:
        clean, lossy = await asyncio.gather(
            asyncio.gather(*(without(server, share) for share in shares)),
            asyncio.gather(*(with_losses(server, share) for share in shares)),
        )
    return (
        [text for share in shares for text in share],
        [packets for said in clean for packets in said],
        [packets for said, _ in lossy for packets in said],
        [setting for _, setting in lossy],
    )


@pytest.mark.slow
def test_words_are_understood_although_one_packet_in_twenty_is_lost() -> None:
    texts, clean, lossy, settings = asyncio.run(spoken(0.05))
    arrived = [packet for packets in lossy for packet in packets]
    lost = 100 * arrived.count(None) / len(arrived)
    filled = filled_percent(lossy)
    without = error_percent(texts, clean, correct=False)
    corrected = error_percent(texts, lossy, correct=True)
    print(f"{lost:.1f} % lost, {filled} % filled; word error {without:.1f} -> {corrected:.1f} %")
    assert 2.5 < lost < 8
    assert without < 8
    assert corrected - without <= 3
    # The losses switched error correction on, and it is what fills the holes …
    assert all(setting >= 5 for setting in settings)
    assert filled is not None
    assert filled > 50
    # … which no packet of a call without losses could do.
    assert not any(packet is not None and corrects(packet) for said in clean for packet in said)
