"""The two doors for browsers: WHEP-shaped `POST /v1/rtc`, and Pipecat's `POST /api/offer`."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from antiphon.engine.errors import InvalidRequest
from antiphon.server.calls.config import CallsSection
from antiphon.server.calls.registry import Calls
from antiphon.server.engines import Wanted
from antiphon.server.errors import MalformedMessage, UnknownCall
from antiphon.server.handshake import owner_of
from antiphon.server.house import House
from antiphon.server.http import HttpPart, json_response, read_body
from antiphon.server.rtc.offer import Offer
from antiphon.server.rtc.peer import Peer

_LONGEST_BODY = 128 * 1024
_FIELDS = ("voice", "model", "language")
_SDP = "application/sdp"
_FRAGMENT = "application/trickle-ice-sdpfrag"
_T = TypeVar("_T")


class _Candidate(msgspec.Struct, frozen=True):
    candidate: str
    sdp_mid: str | None = None
    sdp_mline_index: int | None = None


class _PipecatOffer(msgspec.Struct, frozen=True):
    sdp: str
    type: str = "offer"
    pc_id: str | None = None
    restart_pc: bool = False
    request_data: Any = msgspec.field(default=None, name="requestData")


class _PipecatPatch(msgspec.Struct, frozen=True):
    pc_id: str
    candidates: list[_Candidate]


class RtcDoor:
    """Takes offers and keeps the browsers they came from."""

    def __init__(self, house: House, calls: Calls) -> None:
        self._house = house
        self._calls = calls
        self._peers: dict[str, Peer] = {}

    # WHEP

    async def whep_offer(self, request: Request) -> Response:
        """`POST /v1/rtc`: SDP in, 201 with SDP out."""
        _expect_type(request, _SDP)
        sdp = _text(await read_body(request, _LONGEST_BODY))
        wanted = _wanted(dict(request.query_params))
        peer, answer = await self._admit(Offer(sdp, "webrtc", wanted, self._owner(request)))
        assert peer.call is not None
        headers = {"Location": f"/v1/rtc/{peer.call.id}"}
        if links := _ice_links(self._calls.config):
            headers["Link"] = links
        return Response(answer, 201, headers, media_type=_SDP)

    async def whep_patch(self, request: Request) -> Response:
        """`PATCH /v1/rtc/{id}`: candidates found later."""
        _expect_type(request, _FRAGMENT)
        peer = self._peer(request, request.path_params["call_id"])
        mid: str | None = None
        for line in _text(await read_body(request, _LONGEST_BODY)).splitlines():
            if line.startswith("a=mid:"):
                mid = line.removeprefix("a=mid:").strip()
            elif line.startswith("a=candidate:"):
                await peer.add_candidate(line.removeprefix("a=").strip(), mid or "0", None)
            elif line.startswith("a=end-of-candidates"):
                await peer.add_candidate("", mid, None)
        return Response(status_code=204)

    async def whep_delete(self, request: Request) -> Response:
        """`DELETE /v1/rtc/{id}`: hang up."""
        peer = self._peer(request, request.path_params["call_id"])
        assert peer.call is not None
        peer.call.hang_up("hung up by the page")
        return Response(status_code=204)

    async def ice_servers(self, _: Request) -> Response:
        """`GET /v1/rtc/ice`: what a page passes to its `RTCPeerConnection`."""
        return json_response({"iceServers": _ice_servers(self._calls.config)})

    # Pipecat's SmallWebRTC transport

    async def pipecat_offer(self, request: Request) -> Response:
        """`POST /api/offer`: first offer, renegotiation, or a fresh start."""
        offer = _decode(await read_body(request, _LONGEST_BODY), _PipecatOffer)
        known = self._peers.get(offer.pc_id) if offer.pc_id else None
        if known is not None and not offer.restart_pc:
            known = self._peer(request, offer.pc_id or "")
            answer = await known.renegotiate(offer.sdp)
            return json_response({"sdp": answer, "type": "answer", "pc_id": offer.pc_id})
        if known is not None and known.call is not None:
            known.call.hang_up("replaced by a new connection")
        data = offer.request_data if isinstance(offer.request_data, dict) else {}
        peer, answer = await self._admit(
            Offer(offer.sdp, "pipecat", _wanted(data), self._owner(request))
        )
        assert peer.call is not None
        return json_response({"sdp": answer, "type": "answer", "pc_id": peer.call.id})

    async def pipecat_patch(self, request: Request) -> Response:
        """`PATCH /api/offer`: candidates found later."""
        patch = _decode(await read_body(request, _LONGEST_BODY), _PipecatPatch)
        peer = self._peer(request, patch.pc_id)
        for each in patch.candidates:
            await peer.add_candidate(each.candidate, each.sdp_mid, each.sdp_mline_index)
        return json_response({"status": "success"})

    async def _admit(self, offer: Offer) -> tuple[Peer, str]:
        peer = Peer(self._calls, offer)
        answer = await peer.answer()
        assert peer.call is not None
        assert peer.task is not None
        call_id = peer.call.id
        self._peers[call_id] = peer
        peer.task.add_done_callback(lambda _: self._peers.pop(call_id, None))
        return peer, answer

    def _peer(self, request: Request, call_id: str) -> Peer:
        self._calls.find(call_id, self._owner(request))
        peer = self._peers.get(call_id)
        if peer is None:
            raise UnknownCall("This call is not a browser's.", field="id")
        return peer

    def _owner(self, request: Request) -> str:
        return owner_of(self._house, request.headers, request.scope["query_string"])


def rtc_routes(house: House, calls: Calls, http: HttpPart) -> list[BaseRoute]:
    """Routes of both doors."""
    door = RtcDoor(house, calls)
    return [
        Route("/v1/rtc", http.guarded(door.whep_offer), methods=["POST"]),
        Route("/v1/rtc/ice", http.guarded(door.ice_servers)),
        Route("/v1/rtc/{call_id}", http.guarded(door.whep_delete), methods=["DELETE"]),
        Route("/v1/rtc/{call_id}", http.guarded(door.whep_patch), methods=["PATCH"]),
        Route("/api/offer", http.guarded(door.pipecat_offer), methods=["POST"]),
        Route("/api/offer", http.guarded(door.pipecat_patch), methods=["PATCH"]),
    ]


def _expect_type(request: Request, expected: str) -> None:
    if request.headers.get("content-type", "").split(";")[0].strip().lower() != expected:
        raise InvalidRequest(
            f"The body's type is {expected}.", field="content-type", limit=expected
        )


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedMessage("The body is not UTF-8.", field="body") from None


def _decode(body: bytes, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, RecursionError) as error:
        raise MalformedMessage(f"The body is not valid: {error}.", field="body") from None


def _wanted(fields: dict[str, Any]) -> Wanted:
    chosen = {name: fields[name] for name in _FIELDS if isinstance(fields.get(name), str)}
    return Wanted(**chosen)


def _ice_servers(config: CallsSection) -> list[dict[str, Any]]:
    return [
        {
            "urls": list(server.urls),
            **({"username": server.username} if server.username else {}),
            **({"credential": server.credential.get_secret_value()} if server.credential else {}),
        }
        for server in config.ice_servers
    ]


def _ice_links(config: CallsSection) -> str:
    """The `Link` header of WHEP, one entry for each address."""
    links = []
    for server in _ice_servers(config):
        for url in server["urls"]:
            link = f'<{url}>; rel="ice-server"'
            if "username" in server:
                user, secret = server["username"], server.get("credential", "")
                link += f'; username="{user}"; credential="{secret}"; credential-type="password"'
            links.append(link)
    return ", ".join(links)
