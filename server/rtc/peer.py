"""One browser: its connection from offer to end, as a task of its own."""

from __future__ import annotations

import asyncio
import contextlib
import time

import av
import numpy as np
import structlog
from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCDataChannel,
    RTCIceCandidate,
    RTCIceServer,
    RTCPeerConnection,
    RTCSessionDescription,
)
from aiortc.mediastreams import MediaStreamError
from aiortc.sdp import candidate_from_sdp

from antiphon.engine.errors import AntiphonError, InvalidRequest
from antiphon.engine.watermark.marked import FloatSamples
from antiphon.server.audio import AudioFormat
from antiphon.server.calls.call import Call
from antiphon.server.calls.config import CallsSection
from antiphon.server.calls.leg import Leg
from antiphon.server.calls.registry import Calls
from antiphon.server.calls.spec import CallKind, CallSpec
from antiphon.server.rtc.channel import Channel
from antiphon.server.rtc.loss import LossTracker
from antiphon.server.rtc.offer import MOST_CANDIDATES, Offer, check_offer, hears
from antiphon.server.rtc.realtime import RealtimeLeg
from antiphon.server.rtc.rtvi import RtviLeg
from antiphon.server.rtc.track import OPUS_RATE, CallTrack, opus_frames

_MOST_CHANNELS = 4
"""Data channels of one browser."""
_DISCONNECTED_S = 10.0
"""A connection that was lost may come back within this time."""
_STATS_EVERY_S = 1.0
_LAST_WORDS_S = 0.05
"""For the data channel to say why a call ends before the connection goes."""

_log = structlog.get_logger("antiphon.rtc")


class Peer:
    """A browser's connection. `answer` starts it; it ends by itself or with its call."""

    def __init__(self, calls: Calls, offer: Offer) -> None:
        self._calls = calls
        self._offer = offer
        self._config = calls.config
        self._pc: RTCPeerConnection | None = None
        self._connected = asyncio.Event()
        self._gone = asyncio.Event()
        self._channels: list[Channel] = []
        self._listening: list[asyncio.Task[None]] = []
        self._trickled = 0
        self.call: Call | None = None
        self.task: asyncio.Task[None] | None = None

    async def answer(self) -> str:
        """Take the offer; the answer's SDP.

        Raises:
            InvalidRequest: garbage, or an offer that does not want to hear us (`field` is `sdp`).
            Overloaded, NotReady, UnknownVoice, UnsupportedFeature.
        """
        answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._run(answered))
        try:
            return await asyncio.shield(answered)
        except asyncio.CancelledError:
            self.task.cancel()
            raise

    async def renegotiate(self, sdp: str) -> str:
        """Take another offer on the same connection; the answer's SDP.

        Raises:
            InvalidRequest: as for `answer`.
        """
        assert self._pc is not None
        return await self._negotiate(self._pc, sdp)

    async def add_candidate(self, line: str, mid: str | None, index: int | None) -> None:
        """Add a trickled candidate; an empty line ends them.

        Raises:
            InvalidRequest: not a candidate, or too many; `field` is `candidate`.
        """
        assert self._pc is not None
        self._trickled += 1
        if self._trickled > MOST_CANDIDATES:
            raise InvalidRequest("Too many candidates.", field="candidate", limit=MOST_CANDIDATES)
        try:
            candidate: RTCIceCandidate | None = None
            if line:
                candidate = candidate_from_sdp(line.removeprefix("candidate:"))
                candidate.sdpMid = mid
                candidate.sdpMLineIndex = index
            await self._pc.addIceCandidate(candidate)
        except (ValueError, AssertionError, IndexError, KeyError) as error:
            raise InvalidRequest("This is not an ICE candidate.", field="candidate") from error

    async def _run(self, answered: asyncio.Future[str]) -> None:
        offer = self._offer
        spec = CallSpec(
            kind=CallKind.BROWSER,
            peer=offer.peer,
            audio=AudioFormat.OPUS_RAW,
            sample_rate=OPUS_RATE,
            frames=opus_frames(self._config.opus_bitrate),
            wanted=offer.wanted,
            owner=offer.owner,
        )
        try:
            async with self._calls.open(spec) as call:
                self.call = call
                await self._connect(call, answered)
        except AntiphonError as error:
            if not answered.done():
                answered.set_exception(error)
        except Exception as error:
            _log.error("peer_crashed", error=type(error).__name__)
            if not answered.done():
                answered.set_exception(AntiphonError("The connection could not be made."))

    async def _connect(self, call: Call, answered: asyncio.Future[str]) -> None:
        pc = self._pc = RTCPeerConnection(ice_configuration(self._config))
        pc.on("connectionstatechange", self._state_changed)
        pc.on("datachannel", self._channel_opened)
        pc.on("track", self._track_added)
        try:
            answer = await self._negotiate(pc, self._offer.sdp, CallTrack(call))
            if answered.done():
                return
            answered.set_result(answer)
            await self._live(call, pc)
        finally:
            for channel in self._channels:
                channel.close()
            for task in self._listening:
                task.cancel()
            await pc.close()

    async def _negotiate(
        self, pc: RTCPeerConnection, sdp: str, track: CallTrack | None = None
    ) -> str:
        check_offer(sdp)
        try:
            await pc.setRemoteDescription(RTCSessionDescription(sdp, "offer"))
        except Exception as error:
            # aiortc's parser answers garbage with whatever exception it stumbles into.
            raise InvalidRequest("The offer cannot be answered.", field="sdp") from error
        audio = [each for each in pc.getTransceivers() if each.kind == "audio"]
        hearing = [each for each in audio if hears(each.mid, sdp)]
        if not hearing:
            raise InvalidRequest("The offer has no audio that would be heard.", field="sdp")
        for transceiver in pc.getTransceivers():
            if transceiver.kind != "audio" or transceiver is not hearing[0]:
                transceiver.direction = "inactive"
        if track is not None:
            pc.addTrack(track)
        await pc.setLocalDescription(await pc.createAnswer())
        return str(pc.localDescription.sdp)

    async def _live(self, call: Call, pc: RTCPeerConnection) -> None:
        """Wait for the connection, then for its end."""
        ended = asyncio.create_task(call.ended.wait())
        gone = asyncio.create_task(self._gone.wait())
        up = asyncio.create_task(self._connected.wait())
        try:
            await asyncio.wait(
                {ended, gone, up},
                timeout=self._config.connect_s,
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not up.done():
                call.hang_up("the connection did not come up")
                return
            watch = asyncio.create_task(self._watch_losses(call, pc))
            try:
                await asyncio.wait({ended, gone}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                watch.cancel()
            call.hang_up("the browser went away")
        finally:
            await asyncio.sleep(_LAST_WORDS_S)
            for task in (ended, gone, up):
                task.cancel()

    async def _watch_losses(self, call: Call, pc: RTCPeerConnection) -> None:
        """Let error correction follow what the browser says it loses."""
        losses = LossTracker()
        disconnected_at: float | None = None
        while True:
            await asyncio.sleep(_STATS_EVERY_S)
            if pc.connectionState == "disconnected":
                disconnected_at = disconnected_at or time.monotonic()
                if time.monotonic() - disconnected_at > _DISCONNECTED_S:
                    self._gone.set()
            else:
                disconnected_at = None
            for sender in pc.getSenders():
                for stats in (await sender.getStats()).values():
                    if stats.type == "remote-inbound-rtp":
                        losses.report(stats.timestamp.timestamp(), stats.fractionLost / 256)
            call.opus_tuning.loss_percent = losses.percent

    def _state_changed(self) -> None:
        assert self._pc is not None
        match self._pc.connectionState:
            case "connected":
                self._connected.set()
            case "failed" | "closed":
                self._gone.set()

    def _channel_opened(self, channel: RTCDataChannel) -> None:
        assert self.call is not None
        if len(self._channels) >= _MOST_CHANNELS:
            self.call.hang_up("the page opens more data channels than are taken")
            return
        if self._offer.peer == "pipecat":
            speak: type[Leg] | type[RealtimeLeg] | type[RtviLeg] = RtviLeg
        elif channel.label == "oai-events":
            speak = RealtimeLeg
        else:
            speak = Leg
        self._channels.append(Channel(channel, self.call, speak))

    def _track_added(self, track: MediaStreamTrack) -> None:
        if track.kind == "audio":
            self._listening.append(asyncio.create_task(self._listen(track)))

    async def _listen(self, track: MediaStreamTrack) -> None:
        """Hand the caller's microphone on."""
        assert self.call is not None
        with contextlib.suppress(MediaStreamError):
            while True:
                frame = await track.recv()
                if isinstance(frame, av.AudioFrame):
                    self.call.caller.push(_mono(frame), frame.sample_rate)


def ice_configuration(config: CallsSection) -> RTCConfiguration:
    """The operator's ICE servers, and no others: aiortc's own default is a public one."""
    return RTCConfiguration(
        iceServers=[
            RTCIceServer(
                urls=list(server.urls),
                username=server.username,
                credential=server.credential.get_secret_value() if server.credential else None,
            )
            for server in config.ice_servers
        ]
    )


def _mono(frame: av.AudioFrame) -> FloatSamples:
    values = frame.to_ndarray()
    channels = frame.layout.nb_channels
    if not frame.format.is_planar:
        values = values.reshape(-1, channels).T
    samples: FloatSamples = (values.mean(axis=0) / 32768.0).astype(np.float32)
    return samples
