"""Error correction follows what the listener loses."""

from __future__ import annotations

import asyncio

import pytest

from antiphon.server.rtc.loss import LossTracker
from antiphon.server.rtc.track import OPUS_RATE, opus_frames
from tests.server.harness import serving
from tests.server.phone.peer import eventually, wait_for_calls
from tests.server.rtc.browser import browser


def settle(losses: LossTracker, fraction: float, reports: int = 20, start: float = 0.0) -> int:
    for i in range(reports):
        losses.report(start + i, fraction)
    return losses.percent


def test_steady_losses_settle_on_a_step() -> None:
    assert settle(LossTracker(), 0.0) == 0
    assert settle(LossTracker(), 0.002) == 0
    assert settle(LossTracker(), 0.04) == 5
    assert settle(LossTracker(), 0.08) == 10
    assert settle(LossTracker(), 0.5) == 20


def test_one_lost_packet_changes_nothing_and_losses_that_end_are_forgiven_slowly() -> None:
    losses = LossTracker()
    losses.report(0.0, 0.01)
    assert losses.percent == 0
    settle(losses, 0.08, start=1)
    assert losses.percent == 10
    losses.report(100.0, 0.0)
    assert losses.percent == 10
    assert settle(losses, 0.0, start=101) == 0


def test_a_report_counts_once() -> None:
    losses = LossTracker()
    for _ in range(100):
        losses.report(1.0, 0.02)
    assert losses.percent == 0 or losses.percent == 5
    once = LossTracker()
    once.report(1.0, 0.02)
    assert once.percent == losses.percent


def test_a_silent_packet_is_small_and_20_ms() -> None:
    silence = opus_frames(32_000).silence
    assert len(silence) < 40
    assert OPUS_RATE == 24_000


async def test_reports_of_losses_switch_correction_on_within_a_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The browser drops every eighth packet that arrives, before its RTP receiver sees it.
    from aiortc.rtcdtlstransport import RTCDtlsTransport

    handle = RTCDtlsTransport._handle_rtp_data
    seen = {"packets": 0, "dropping": True}

    async def lossy(self: RTCDtlsTransport, data: bytes, arrival_time_ms: int) -> None:
        seen["packets"] += 1
        if seen["dropping"] and seen["packets"] % 8 == 0:
            return
        await handle(self, data, arrival_time_ms)

    monkeypatch.setattr("antiphon.server.rtc.peer._STATS_EVERY_S", 0.2)
    monkeypatch.setattr(RTCDtlsTransport, "_handle_rtp_data", lossy)
    async with serving() as server, browser(server) as page:
        await page.until("session.started")
        (call,) = server.calls._calls.values()
        assert call.opus_tuning.loss_percent == 0
        await eventually(lambda: call.opus_tuning.loss_percent > 0)
        page.send("input.text", text="one two three ")
        page.send("input.done")
        assert (await page.until("session.done"))["finish_reason"] == "stop"
        (listed,) = await wait_for_calls(server, 1)
        assert listed["loss_percent"] > 0
        await asyncio.sleep(0)
