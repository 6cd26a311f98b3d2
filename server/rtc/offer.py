"""What a browser offers, and what of it is not taken. Free of I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

from antiphon.engine.errors import InvalidRequest
from antiphon.server.engines import Wanted

_LONGEST_SDP = 64 * 1024
_MOST_SECTIONS = 8
"""Media of one offer. A call needs two; Pipecat's transport offers four."""
MOST_CANDIDATES = 100
"""Addresses of one browser. Each is paired with each of ours, and then tried."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a browser asked for."""

    sdp: str
    peer: str
    """`webrtc` or `pipecat`."""
    wanted: Wanted = field(default_factory=Wanted)
    owner: str = ""


def check_offer(sdp: str) -> None:
    """Refuse an offer whose parsing or answering would take time from other calls.

    Raises:
        InvalidRequest: too long, too much media, too many candidates, or no certificate to
            encrypt for; `field` is `sdp`.
    """
    if len(sdp) > _LONGEST_SDP:
        raise InvalidRequest("The offer is too long.", field="sdp", limit=_LONGEST_SDP)
    lines = sdp.splitlines()  # at every end of a line that the parser knows
    if sum(line.startswith("m=") for line in lines) > _MOST_SECTIONS:
        raise InvalidRequest("The offer has too much media.", field="sdp", limit=_MOST_SECTIONS)
    if sum(line.startswith("a=candidate:") for line in lines) > MOST_CANDIDATES:
        raise InvalidRequest(
            "The offer has too many candidates.", field="sdp", limit=MOST_CANDIDATES
        )
    if not any(line.startswith("a=fingerprint:") for line in lines):
        raise InvalidRequest("The offer has no DTLS fingerprint.", field="sdp")


def hears(mid: str | None, sdp: str) -> bool:
    """Whether the offer's section with this id wants to receive."""
    sections = sdp.replace("\r\n", "\n").split("\nm=")[1:]
    for section in sections:
        lines = section.split("\n")
        if f"a=mid:{mid}" in lines:
            return "a=sendonly" not in lines and "a=inactive" not in lines
    return False
