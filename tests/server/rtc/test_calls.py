"""Calls from browsers: aiortc at both ends, over real UDP on loopback."""

from __future__ import annotations

import asyncio
import itertools

import httpx
import numpy as np
import pytest
from aiortc import RTCConfiguration, RTCPeerConnection
from aiortc.mediastreams import AudioStreamTrack

from antiphon.engine.watermark.marked import FloatSamples
from antiphon.server.audio.opus import AvOpusEncoder
from antiphon.server.rtc.track import opus_frames
from tests.server.harness import Running, serving
from tests.server.phone.peer import eventually, loudest_hz, wait_for_calls
from tests.server.rtc.browser import browser
from tests.server.tone_engine import word_tone


async def test_a_page_speaks_text_and_hears_it() -> None:
    async with serving() as server, browser(server, query="?voice=mid") as page:
        started = await page.until("call.started")
        assert (started["kind"], started["peer"]) == ("browser", "webrtc")
        assert (await page.until("session.started"))["voice"] == "mid"
        for piece in ("one ", "two ", "three "):
            page.send("input.text", text=piece)
        page.send("input.done")
        words = [(await page.until("progress"))["text"] for _ in range(3)]
        done = await page.until("session.done")
        await eventually(lambda: len(page.speech()) >= 0.55 * 48000)
        await asyncio.sleep(0.3)
        (call,) = await wait_for_calls(server, 1)
    assert words == ["one", "two", "three"]
    assert (done["finish_reason"], done["samples"]) == ("stop", 3 * 4800)
    assert call["underruns"] == 0
    heard = page.speech()
    assert len(heard) == pytest.approx(0.6 * 48000, abs=0.06 * 48000)
    for i, word in enumerate(words):
        middle = heard[round((i * 0.2 + 0.05) * 48000) : round((i * 0.2 + 0.15) * 48000)]
        assert loudest_hz(middle, 48000) == pytest.approx(word_tone("mid", word), abs=12)


async def test_packets_carry_pre_encoded_mono_and_a_contiguous_clock() -> None:
    async with serving() as server, browser(server) as page:
        await page.until("session.started")
        page.send("input.text", text="one two three four ")
        page.send("input.done")
        await page.until("session.done")
        await eventually(lambda: len(page.speech()) >= 0.7 * 48000)
        (sender,) = [
            stats for stats in (await page.pc.getStats()).values() if stats.type == "inbound-rtp"
        ]
        assert sender.packetsLost == 0
    steps = {b - a for a, b in itertools.pairwise(page.frame_times)}
    assert steps == {960}


async def test_speech_is_encoded_once_and_silence_never(monkeypatch: pytest.MonkeyPatch) -> None:
    opus_frames(32_000)  # the packet of silence, encoded when the server's first call comes
    encoded: list[int] = []
    encode = AvOpusEncoder.encode

    def counted(self: AvOpusEncoder, frame: FloatSamples) -> list[bytes]:
        encoded.append(len(frame))
        return encode(self, frame)

    def second(*_: object) -> None:
        raise AssertionError("aiortc encodes")

    monkeypatch.setattr(AvOpusEncoder, "encode", counted)
    monkeypatch.setattr("aiortc.codecs.opus.OpusEncoder.encode", second)
    async with serving() as server, browser(server) as page:
        await page.until("session.started")
        page.send("input.text", text="one two three ")
        page.send("input.done")
        await page.until("session.done")
        await eventually(lambda: len(page.speech()) >= 0.55 * 48000)
    assert encoded == [480] * 30


async def test_barge_in_is_silence_from_the_next_packet_and_the_next_turn_is_whole() -> None:
    async with serving() as server, browser(server) as page:
        await page.until("session.started")
        page.send("input.text", text="one two three four five six seven eight nine ten ")
        page.send("input.done")
        await page.until("audio.played")
        page.send("input.cancel")
        done = await page.until("session.done")
        assert done["cancelled"]
        await eventually(lambda: len(page.samples) > 48000 // 2)
        await asyncio.sleep(0.5)
        assert np.abs(page.samples[-48000 // 5 :]).max() < 0.02
        assert len(page.speech()) < 1.2 * 48000
        page.frames.clear()
        page.send("input.text", text="again ")
        page.send("input.done")
        assert (await page.until("session.done"))["finish_reason"] == "stop"
        await eventually(lambda: len(page.speech()) > 0.15 * 48000)
        await asyncio.sleep(0.3)
        heard = page.speech()
    assert len(heard) == pytest.approx(0.2 * 48000, abs=0.05 * 48000)
    assert loudest_hz(heard[2400:-2400], 48000) == pytest.approx(word_tone("low", "again"), abs=12)


async def test_errors_arrive_on_the_channel_and_the_call_goes_on() -> None:
    async with serving() as server, browser(server) as page:
        await page.until("session.started")
        page.channel.send("not json")
        assert (await page.until("error"))["code"] == "malformed_message"
        page.send("session.config", voice="nobody")
        assert (await page.until("error"))["field"] == "voice"
        page.send("session.config", voice="high", response_format="mp3", sample_rate=8000)
        started = await page.until("session.started")
        # The form is the call's own, whatever a page asks for.
        assert (started["voice"], started["response_format"]) == ("high", "opus_raw")
        page.send("input.text", text="fine ")
        page.send("input.done")
        assert (await page.until("session.done"))["finish_reason"] == "stop"


async def test_the_microphone_is_heard() -> None:
    async with serving() as server, browser(server, microphone=AudioStreamTrack()) as page:
        level = await page.until("caller.level")
        assert level["dbfs"] == -100
        (call,) = await wait_for_calls(server, 1)
        assert call["caller_s"] > 0


async def test_delete_ends_a_call() -> None:
    async with (
        serving() as server,
        browser(server) as page,
        httpx.AsyncClient(trust_env=False, base_url=server.url) as http,
    ):
        await page.until("call.started")
        assert (await http.delete(page.location)).status_code == 204
        assert (await page.until("call.ended"))["reason"] == "hung up by the page"
        await wait_for_calls(server, 0)
        assert (await http.delete(page.location)).status_code == 404


async def test_a_page_that_closes_ends_its_call_and_its_turn() -> None:
    async with serving() as server:
        async with browser(server) as page:
            await page.until("call.started")
            page.send("input.text", text="one two three four five six seven eight nine ")
            await page.until("audio.played")
            assert server.engine.counters.open_now == 1
        await wait_for_calls(server, 0)
        assert server.engine.counters.open_now == 0


OFFERS = [
    b"",
    b"v=0\r\n",
    b"hello",
    b"\xff\xfe",
    b"v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\n",
    b"a" * 100_000,
]


@pytest.mark.parametrize("offer", OFFERS)
async def test_garbage_is_refused_and_leaves_nothing(offer: bytes) -> None:
    async with (
        serving() as server,
        httpx.AsyncClient(trust_env=False, base_url=server.url) as http,
    ):
        answer = await http.post(
            "/v1/rtc", content=offer, headers={"Content-Type": "application/sdp"}
        )
        assert answer.status_code == 400
        assert answer.json()["error"]["field"] in ("sdp", "body")
        wrong_type = await http.post("/v1/rtc", content=offer)
        assert wrong_type.json()["error"]["field"] == "content-type"
        await wait_for_calls(server, 0)


@pytest.mark.parametrize("direction", [None, "sendonly"])
async def test_an_offer_that_would_not_hear_us_is_refused(direction: str | None) -> None:
    pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    pc.createDataChannel("tts")
    if direction:
        pc.addTransceiver(AudioStreamTrack(), direction=direction)
    await pc.setLocalDescription(await pc.createOffer())
    async with serving() as server:
        answer = await offer_to(server, pc.localDescription.sdp)
        assert answer.status_code == 400
        assert answer.json()["error"]["field"] == "sdp"
        await wait_for_calls(server, 0)
    await pc.close()


async def offer_to(server: Running, sdp: str) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False, base_url=server.url) as http:
        return await http.post("/v1/rtc", content=sdp, headers={"Content-Type": "application/sdp"})


async def test_offers_that_never_connect_are_refused_past_the_limit_and_cleaned_up() -> None:
    pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    pc.addTransceiver("audio", direction="recvonly")
    await pc.setLocalDescription(await pc.createOffer())
    sdp = pc.localDescription.sdp
    await pc.close()
    async with serving({"calls.connect_s": 3.0, "calls.max_calls": 5}) as server:
        answers = await asyncio.gather(*(offer_to(server, sdp) for _ in range(12)))
        codes = [answer.status_code for answer in answers]
        assert codes.count(201) == 5
        refused = [answer for answer in answers if answer.status_code == 429]
        assert len(refused) == 7
        assert all("retry-after" in answer.headers for answer in refused)
        await wait_for_calls(server, 0)
        assert (await offer_to(server, sdp)).status_code == 201


async def test_an_unknown_voice_is_an_error_not_silence() -> None:
    pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    pc.addTransceiver("audio", direction="recvonly")
    await pc.setLocalDescription(await pc.createOffer())
    async with (
        serving() as server,
        httpx.AsyncClient(trust_env=False, base_url=server.url) as http,
    ):
        answer = await http.post(
            "/v1/rtc?voice=nobody",
            content=pc.localDescription.sdp,
            headers={"Content-Type": "application/sdp"},
        )
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "unknown_voice"
        await wait_for_calls(server, 0)
    await pc.close()


async def test_ice_servers_come_from_the_configuration_only() -> None:
    turn = {"urls": ["turn:turn.example.org:3478"], "username": "u", "credential": "secret"}
    async with serving() as server, httpx.AsyncClient(trust_env=False) as http:
        assert (await http.get(f"{server.url}/v1/rtc/ice")).json() == {"iceServers": []}
    async with (
        serving({"calls.ice_servers": [turn]}) as server,
        httpx.AsyncClient(trust_env=False) as http,
    ):
        assert (await http.get(f"{server.url}/v1/rtc/ice")).json() == {"iceServers": [turn]}
        from antiphon.server.rtc.peer import ice_configuration

        (ours,) = ice_configuration(server.calls.config).iceServers
        assert (ours.urls, ours.username, ours.credential) == (turn["urls"], "u", "secret")
        assert "secret" not in server.house.config.describe()


async def test_keys_own_their_calls() -> None:
    keys = ["first-long-key", "second-long-key"]
    limits = {"server.api_keys": keys, "calls.max_calls_per_key": 1, "calls.connect_s": 30}
    pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    pc.addTransceiver("audio", direction="recvonly")
    await pc.setLocalDescription(await pc.createOffer())
    sdp = pc.localDescription.sdp
    await pc.close()
    async with (
        serving(limits) as server,
        httpx.AsyncClient(trust_env=False, base_url=server.url) as http,
    ):
        headers = {"Content-Type": "application/sdp"}
        assert (await http.post("/v1/rtc", content=sdp, headers=headers)).status_code == 401
        answers = []
        for key in (keys[0], keys[0], keys[1]):
            auth = {**headers, "Authorization": f"Bearer {key}"}
            answers.append(await http.post("/v1/rtc", content=sdp, headers=auth))
        assert [answer.status_code for answer in answers] == [201, 429, 201]
        second = {"Authorization": f"Bearer {keys[1]}"}
        listed = (await http.get("/v1/calls", headers=second)).json()["calls"]
        assert [f"/v1/rtc/{call['id']}" for call in listed] == [answers[2].headers["location"]]
        theirs, ours = answers[0].headers["location"], answers[2].headers["location"]
        assert (await http.delete(theirs, headers=second)).status_code == 404
        assert (await http.delete(ours, headers=second)).status_code == 204
        await eventually(lambda: len(server.calls) == 1)
