"""Who finds which call."""

from __future__ import annotations

import pytest

from antiphon.server.audio import AudioFormat
from antiphon.server.calls.spec import CallKind, CallSpec
from antiphon.server.errors import UnknownCall
from antiphon.server.phone.audio import phone_frames
from tests.server.harness import serving


def spec(owner: str, alias: str) -> CallSpec:
    return CallSpec(
        kind=CallKind.PHONE,
        peer="twilio",
        audio=AudioFormat.ULAW,
        sample_rate=8000,
        frames=phone_frames(AudioFormat.ULAW, 8000),
        owner=owner,
        alias=alias,
    )


async def test_anothers_call_by_the_same_name_does_not_hide_ones_own() -> None:
    async with (
        serving() as server,
        server.calls.open(spec("stranger", "CA1")) as theirs,
        server.calls.open(spec("me", "CA1")) as mine,
    ):
        assert server.calls.find("CA1", "me") is mine
        assert server.calls.find("CA1", "stranger") is theirs
        assert server.calls.find(mine.id, "me") is mine
        assert [call["id"] for call in server.calls.listing("me")] == [mine.id]
        for name in (theirs.id, "", "CA2"):
            with pytest.raises(UnknownCall):
                server.calls.find(name, "me")


async def test_a_calls_own_id_stands_before_a_name_that_another_chose() -> None:
    async with (
        serving() as server,
        server.calls.open(spec("", "CA1")) as mine,
        server.calls.open(spec("", mine.id)) as other,
    ):
        assert server.calls.find(mine.id) is mine
        assert server.calls.find(other.id) is other
