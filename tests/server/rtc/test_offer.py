"""Offers that would take time from other calls are refused before they are parsed."""

from __future__ import annotations

import asyncio
import re
import time

import httpx
import pytest

from antiphon.engine.errors import InvalidRequest
from antiphon.server.rtc.offer import MOST_CANDIDATES, check_offer
from tests.server.harness import serving
from tests.server.phone.peer import wait_for_calls
from tests.server.rtc.browser import browser
from tests.server.rtc.test_offers import an_offer

SDP = {"Content-Type": "application/sdp"}
SECTION = "m=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=recvonly\r\n"


def candidates(count: int) -> str:
    return "".join(
        f"a=candidate:{i} 1 udp {i + 1} 192.0.2.{i % 250 + 1} {1000 + i} typ host\r\n"
        for i in range(count)
    )


async def test_an_offer_of_a_browser_is_taken() -> None:
    sdp = await an_offer()
    check_offer(sdp)
    check_offer(sdp + candidates(MOST_CANDIDATES - sdp.count("a=candidate:")))


@pytest.mark.parametrize("end", ["\r\n", "\n", "\r", "\u2028"])
async def test_too_much_is_refused_however_its_lines_end(end: str) -> None:
    sdp = await an_offer()
    for more in (SECTION * 8, candidates(MOST_CANDIDATES + 1), "a=x\r\n" * 20_000):
        with pytest.raises(InvalidRequest) as refused:
            check_offer((sdp + more).replace("\r\n", end))
        assert refused.value.field == "sdp"
        assert refused.value.limit is not None


async def test_an_offer_without_a_certificate_is_refused() -> None:
    sdp = re.sub(r"a=fingerprint:.*\r\n", "", await an_offer())
    async with (
        serving() as server,
        httpx.AsyncClient(trust_env=False, base_url=server.url) as http,
    ):
        answer = await http.post("/v1/rtc", content=sdp, headers=SDP)
        assert (answer.status_code, answer.json()["error"]["field"]) == (400, "sdp")
        await wait_for_calls(server, 0)


async def test_a_flood_of_candidates_is_refused_and_holds_up_nobody() -> None:
    sdp = await an_offer()
    fragment = {"Content-Type": "application/trickle-ice-sdpfrag"}
    async with (
        serving({"calls.connect_s": 3.0}) as server,
        httpx.AsyncClient(trust_env=False, base_url=server.url, timeout=30) as http,
    ):
        answer = await http.post("/v1/rtc", content=sdp, headers=SDP)
        assert answer.status_code == 201
        began = time.process_time()
        trickled = await http.patch(
            answer.headers["location"], content="a=mid:0\r\n" + candidates(1_500), headers=fragment
        )
        # Some 50 ms on one old core; all of them took 1.4 s, in which no other call was served.
        assert time.process_time() - began < 0.7
        error = trickled.json()["error"]
        assert (trickled.status_code, error["field"]) == (400, "candidate")
        assert error["limit"] == MOST_CANDIDATES
        await wait_for_calls(server, 0)


async def test_a_page_that_opens_channel_after_channel_is_hung_up_on() -> None:
    async with serving() as server, browser(server) as page:
        await page.until("call.started")
        for i in range(3):
            page.pc.createDataChannel(f"more {i}")
        await asyncio.sleep(0.3)
        await wait_for_calls(server, 1)
        for i in range(20):
            page.pc.createDataChannel(f"too many {i}")
        ended = await page.until("call.ended")
        assert ended["reason"] == "the page opens more data channels than are taken"
        await wait_for_calls(server, 0)
