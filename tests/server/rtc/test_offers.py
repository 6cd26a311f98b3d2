"""Offers whose connection never comes up: refused past the limit, cleaned up, forgotten."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import time
from pathlib import Path

import httpx
import pytest
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.rtcrtpsender import RTCRtpSender

from antiphon.server.rtc.peer import Peer
from tests.server.harness import PATIENCE_S, Running, eventually, serving
from tests.server.phone.peer import wait_for_calls
from tests.server.rtc.browser import browser

BATCH = 50
CANDIDATE = re.compile(r"^a=(candidate:.*|end-of-candidates)\r\n", re.MULTILINE)


async def an_offer() -> str:
    """A good offer of a browser that is gone."""
    pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    pc.addTransceiver("audio", direction="recvonly")
    pc.createDataChannel("tts")
    await pc.setLocalDescription(await pc.createOffer())
    sdp = pc.localDescription.sdp
    await pc.close()
    return sdp


def nobody_there(sdp: str) -> str:
    """Candidates at addresses that no host has (RFC 5737)."""
    return re.sub(r"^(a=candidate:\S+ 1 udp \d+) \S+ ", r"\1 192.0.2.1 ", sdp, flags=re.MULTILINE)


def no_candidates(sdp: str) -> str:
    """As with trickling, whose candidates then never come."""
    return CANDIDATE.sub("", sdp)


async def post(http: httpx.AsyncClient, sdp: str) -> int:
    answer = await http.post("/v1/rtc", content=sdp, headers={"Content-Type": "application/sdp"})
    return answer.status_code


@pytest.mark.parametrize("spoilt", [nobody_there, no_candidates])
async def test_ice_that_never_completes_ends_in_time_and_harms_no_other_call(spoilt) -> None:  # type: ignore[no-untyped-def]
    sdp = spoilt(await an_offer())
    async with (
        serving({"calls.connect_s": 1.0}) as server,
        browser(server) as page,
        httpx.AsyncClient(trust_env=False, base_url=server.url, timeout=30) as http,
    ):
        await page.until("session.started")
        began = time.monotonic()
        assert await post(http, sdp) == 201
        page.send("input.text", text="one two three four five six seven eight ")
        page.send("input.done")
        assert len(server.calls) == 2
        await eventually(lambda: len(server.calls) == 1, within_s=10)
        # The limit, 50 ms for last words, and the closing of the connection.
        assert 1.0 <= time.monotonic() - began < 4.0
        assert (await page.until("session.done"))["finish_reason"] == "stop"
        await wait_for_calls(server, 1)


@pytest.mark.slow
async def test_a_thousand_offers_leave_nothing() -> None:
    sdp = nobody_there(await an_offer())
    limits = {"calls.connect_s": 1.0, "calls.max_calls": BATCH}
    async with (
        serving(limits) as server,
        httpx.AsyncClient(trust_env=False, base_url=server.url, timeout=60) as http,
    ):
        await batch(server, http, sdp)  # loads what is loaded once
        before = held()
        for _ in range(1000 // BATCH):
            await batch(server, http, sdp)
        after = held()
        assert server.calls._admission.taken == 0
    assert after["descriptors"] <= before["descriptors"]
    assert after["tasks"] <= before["tasks"]
    assert after["peers"] == after["senders"] == 0
    # A thousand connections that were kept would be hundreds of megabytes.
    assert after["resident_mb"] - before["resident_mb"] < 32


async def batch(server: Running, http: httpx.AsyncClient, sdp: str) -> None:
    """As many offers as there may be calls, one that is refused, and the end of all."""
    codes = await asyncio.gather(*(post(http, sdp) for _ in range(BATCH)))
    full = len(server.calls) == BATCH
    if full:
        assert await post(http, sdp) == 429
    assert codes == [201] * BATCH
    await eventually(lambda: len(server.calls) == 0, within_s=10)


def held() -> dict[str, float]:
    """What the process holds that could leak."""
    gc.collect()
    # By `type`: asking a dead weak proxy for its class raises.
    kept = [type(each) for each in gc.get_objects()]
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "tasks": len(asyncio.all_tasks()),
        "peers": sum(issubclass(each, Peer) for each in kept),
        "senders": sum(issubclass(each, RTCRtpSender) for each in kept),
        "resident_mb": pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
    }


async def test_candidates_may_come_later() -> None:
    pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    pc.addTransceiver("audio", direction="recvonly")
    opened = asyncio.Event()
    pc.createDataChannel("tts").on("open", opened.set)
    await pc.setLocalDescription(await pc.createOffer())
    sdp = pc.localDescription.sdp
    later = [f"a={line}" for line in dict.fromkeys(CANDIDATE.findall(sdp))]
    assert any(line.startswith("a=candidate:") for line in later)
    async with (
        serving() as server,
        httpx.AsyncClient(trust_env=False, base_url=server.url, timeout=30) as http,
    ):
        answer = await http.post(
            "/v1/rtc", content=no_candidates(sdp), headers={"Content-Type": "application/sdp"}
        )
        assert answer.status_code == 201
        await pc.setRemoteDescription(RTCSessionDescription(answer.text, "answer"))
        where = answer.headers["location"]
        kind = {"Content-Type": "application/trickle-ice-sdpfrag"}
        assert (await http.patch(where, content="a=mid:0")).json()["error"]["field"] == (
            "content-type"
        )
        bad = await http.patch(where, content="a=candidate:x", headers=kind)
        assert (bad.status_code, bad.json()["error"]["field"]) == (400, "candidate")
        stranger = await http.patch("/v1/rtc/nobody", content="a=mid:0", headers=kind)
        assert stranger.status_code == 404
        fragment = "\r\n".join(["a=mid:0", *later, ""])
        assert (await http.patch(where, content=fragment, headers=kind)).status_code == 204
        await asyncio.wait_for(opened.wait(), PATIENCE_S)
        await pc.close()
        await wait_for_calls(server, 0)
