"""Other people's languages on the data channel: OpenAI Realtime events, Pipecat's transport."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription

from tests.server.harness import PATIENCE_S, serving
from tests.server.phone.peer import eventually, wait_for_calls
from tests.server.rtc.browser import Browser, browser


def ask(page: Browser, text: str) -> None:
    content = [{"type": "input_text", "text": text}]
    page.send(
        "conversation.item.create", item={"type": "message", "role": "user", "content": content}
    )
    page.send("response.create")


async def test_openais_events_speak_and_report() -> None:
    async with serving() as server, browser(server, label="oai-events") as page:
        created = await page.until("session.created")
        assert created["session"]["audio"]["output"]["voice"] == "low"
        page.send("session.update", session={"audio": {"output": {"voice": "mid"}}})
        assert (await page.until("session.updated"))["session"]["audio"]["output"] == {
            "voice": "mid"
        }
        ask(page, "one two")
        await page.until("conversation.item.added")
        response = (await page.until("response.created"))["response"]
        assert response["status"] == "in_progress"
        assert (await page.until("output_audio_buffer.started"))["response_id"] == response["id"]
        words = [
            (await page.until("response.output_audio_transcript.delta"))["delta"] for _ in range(2)
        ]
        assert words == ["one", "two"]
        await page.until("output_audio_buffer.stopped")
        done = (await page.until("response.done"))["response"]
        assert (done["id"], done["status"]) == (response["id"], "completed")


async def test_openais_cancel_clears_the_buffer() -> None:
    async with serving() as server, browser(server, label="oai-events") as page:
        await page.until("session.created")
        ask(page, "one two three four five six seven eight nine")
        await page.until("response.output_audio_transcript.delta")
        page.send("response.cancel")
        await page.until("output_audio_buffer.cleared")
        assert (await page.until("response.done"))["response"]["status"] == "cancelled"


async def test_openais_errors_have_openais_shape() -> None:
    async with serving() as server, browser(server, label="oai-events") as page:
        await page.until("session.created")
        for message in (
            "nonsense",
            "[]",
            '{"type":"no.such.event"}',
            "{}",
            '{"type":"session.update"}',
            '{"type":"session.update","session":{"voice":"nobody"}}',
            '{"type":"conversation.item.create","item":{"content":3}}',
            '{"type":"conversation.item.create","item":{"content":[{"type":"input_text"}]}}',
        ):
            page.channel.send(message)
            error = (await page.until("error"))["error"]
            assert error["type"] == "invalid_request_error"
            assert error["message"]
            assert error["code"] in ("malformed_message", "unknown_voice")
        ask(page, "fine")
        assert (await page.until("response.done"))["response"]["status"] == "completed"


class PipecatPage:
    """What the SmallWebRTC transport does: three sections, candidates later, RTVI on `chat`."""

    def __init__(self) -> None:
        self.pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self.channel = self.pc.createDataChannel("chat")
        self.pc.addTransceiver("audio", direction="sendrecv")
        self.pc.addTransceiver("video", direction="sendrecv")
        self.messages: list[dict[str, Any]] = []
        self.channel.on("message", lambda raw: self.messages.append(json.loads(raw)))

    async def offer(self, url: str, **fields: Any) -> dict[str, Any]:
        """Post an offer without candidates, then trickle them."""
        await self.pc.setLocalDescription(await self.pc.createOffer())
        lines = self.pc.localDescription.sdp.split("\r\n")
        bare = [line for line in lines if not line.startswith(("a=candidate", "a=end-of-cand"))]
        candidates = [line.removeprefix("a=") for line in lines if line.startswith("a=candidate")]
        async with httpx.AsyncClient(trust_env=False, base_url=url) as http:
            body = {"sdp": "\r\n".join(bare), "type": "offer", "pc_id": None, "restart_pc": False}
            answer = await http.post("/api/offer", json={**body, **fields})
            assert answer.status_code == 200, answer.text
            result: dict[str, Any] = answer.json()
            trickled = [
                {"candidate": each, "sdp_mid": "0", "sdp_mline_index": 0} for each in candidates
            ] + [{"candidate": "", "sdp_mid": "0", "sdp_mline_index": 0}]
            patch = {"pc_id": result["pc_id"], "candidates": trickled}
            assert (await http.patch("/api/offer", json=patch)).json() == {"status": "success"}
            bad = {"pc_id": result["pc_id"], "candidates": [{"candidate": "candidate:x"}]}
            assert (await http.patch("/api/offer", json=bad)).status_code == 400
            stranger = {"pc_id": "nobody", "candidates": []}
            assert (await http.patch("/api/offer", json=stranger)).status_code == 404
        await self.pc.setRemoteDescription(RTCSessionDescription(result["sdp"], "answer"))
        return result

    def rtvi(self, kind: str, data: dict[str, Any] | None = None) -> None:
        message = {"label": "rtvi-ai", "type": kind, "id": f"id-{kind}", "data": data or {}}
        self.channel.send(json.dumps(message))

    def types(self) -> list[str]:
        return [message["type"] for message in self.messages]


async def test_pipecats_transport_connects_speaks_and_renegotiates() -> None:
    async with serving() as server:
        page = PipecatPage()
        opened = asyncio.Event()
        page.channel.on("open", opened.set)
        answer = await page.offer(server.url, requestData={"voice": "mid"})
        assert answer["sdp"].count("\r\nm=") == 3
        await asyncio.wait_for(opened.wait(), PATIENCE_S)
        page.channel.send("ping: 123")
        page.channel.send('{"type":"signalling","message":{"type":"trackStatus"}}')
        page.rtvi("client-ready")
        await eventually(lambda: "bot-ready" in page.types())
        ready = page.messages[page.types().index("bot-ready")]
        assert (ready["label"], ready["id"]) == ("rtvi-ai", "id-client-ready")
        page.rtvi("client-message", {"t": "tts.speak", "d": {"text": "one two"}})
        await eventually(lambda: "bot-tts-stopped" in page.types())
        spoken = [m["data"]["text"] for m in page.messages if m["type"] == "bot-tts-text"]
        assert spoken == ["one", "two"]
        assert page.types().index("bot-tts-started") < page.types().index("bot-tts-text")
        page.rtvi("client-message", {"t": "no.such"})
        await eventually(lambda: "error-response" in page.types())
        (call,) = await wait_for_calls(server, 1)
        assert (call["peer"], call["id"]) == ("pipecat", answer["pc_id"])

        page.messages.clear()
        again = await page.offer(server.url, pc_id=answer["pc_id"])
        assert again["pc_id"] == answer["pc_id"]
        page.rtvi("client-message", {"t": "tts.append", "d": {"text": "three four five six "}})
        await eventually(lambda: "bot-tts-text" in page.types())
        page.rtvi("client-message", {"t": "tts.stop"})
        await eventually(lambda: "bot-tts-stopped" in page.types())
        page.rtvi("disconnect-bot")
        await eventually(lambda: {"type": "peerLeft"} in [m.get("message") for m in page.messages])
        await wait_for_calls(server, 0)
        await page.pc.close()
