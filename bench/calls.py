"""Calls by door: how soon the peer hears something, and how many calls one machine carries.

Three questions, each asked at every door (browser over WebRTC, Twilio, AudioSocket):

1. One call with live synthesis: from the text leaving an agent to the first sound reaching the
   peer's socket (network packets, before any jitter buffer of the peer's).
2. Twenty calls at once of speech made beforehand and marked: frames that were not there in time
   (underruns), frames that left more than 20 ms late and how late the latest left, the longest wait
   between two frames that any peer saw, the server's CPU for a call, and the CPU that programs
   which do not belong to the measurement took meanwhile.
3. The most calls with live synthesis that start at the same moment without an underrun
   (AudioSocket): doubled until one runs dry, then halved in between, for `--search-minutes` at the
   longest.

The server is a process of its own, and its processor time that of all its processes; the peers
share the machine with it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx

from bench.calls_peers import DOORS, Door, Peer, open_peer
from bench.calls_server import MOST_CALLS, ServerProcess, server_process
from bench.report import Row, publish, switches
from bench.search import next_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TEXT = (
    "Thank you for calling. I can see your order here, and it should arrive tomorrow morning. "
    "Is there anything else that I can do for you today?"
)
CALLS = 20


async def first_sounds(server: ServerProcess, door: Door, times: int) -> Row:
    """Text in to first sound at the peer, one call after the other."""
    measured: list[float] = []
    async with open_peer(server, door) as peer:
        for _ in range(times):
            measured.append(await peer.first_sound_s(TEXT))
            await peer.until_done()
    return {
        "door": door.name,
        "calls": 1,
        "speech": "live",
        "first sound ms": 1000 * statistics.median(measured),
        "underruns": await underruns(server),
        "late frames": None,
        "latest frame ms": None,
        "longest wait ms": None,
        "CPU % a call": None,
        "others' CPU %": None,
    }


async def many_calls(server: ServerProcess, door: Door, calls: int, speech: str) -> Row:
    """Calls that all start to speak at the same moment."""
    async with AsyncExitStack() as stack:
        peers: list[Peer] = []
        for _ in range(calls):
            peers.append(await stack.enter_async_context(open_peer(server, door)))
        late = await late_frames(server)
        cpu, began = server.cpu_s(), time.monotonic()
        others = others_cpu_s(server)
        firsts = await asyncio.gather(*(peer.first_sound_s(TEXT) for peer in peers))
        await asyncio.gather(*(peer.until_done() for peer in peers))
        seconds = time.monotonic() - began
        used = (server.cpu_s() - cpu) / seconds
        others = (others_cpu_s(server) - others) / seconds
        listed = await listing(server)
    paced = door.paced
    return {
        "door": door.name,
        "calls": calls,
        "speech": speech,
        "first sound ms": 1000 * statistics.median(firsts),
        "underruns": sum(call["underruns"] for call in listed),
        "late frames": sum(call["late_frames"] for call in listed) - late if paced else None,
        "latest frame ms": max(call["most_late_ms"] for call in listed) if paced else None,
        "longest wait ms": 1000 * max(p.ear.longest_wait_s for p in peers) if paced else None,
        "CPU % a call": 100 * used / calls,
        "others' CPU %": 100 * others,
    }


@dataclass
class Search:
    """What the search for the most live calls has found so far."""

    most: int
    good: int = 0
    """The most calls of which none ran dry."""
    bad: int = 0
    """The fewest of which some did; `most` + 1 if none ever did."""
    rows: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bad = self.most + 1

    def describe(self) -> str:
        """In words, for the title."""
        if self.bad > self.most:
            return f"{self.good} live calls, the most that were tried, without an underrun"
        exact = "" if self.bad == self.good + 1 else " (the search was ended by its time)"
        return f"{self.good} live calls without an underrun, {self.bad} with some{exact}"


async def most_live_calls(server: ServerProcess, door: Door, most: int, most_s: float) -> Search:
    """Look for the most calls of which none runs dry; no trial begins after `most_s` seconds."""
    found = Search(most)
    ends = time.monotonic() + most_s
    while time.monotonic() < ends:
        count = next_count(found.good, found.bad, most)
        if count is None:
            break
        found.rows.append(await many_calls(server, door, count, "live"))
        if found.rows[-1]["underruns"]:
            found.bad = count
        else:
            found.good = count
    return found


async def listing(server: ServerProcess) -> list[dict[str, Any]]:
    """What the server says of its calls."""
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.get(f"{server.url}/v1/calls", timeout=30)
    calls: list[dict[str, Any]] = answer.json()["calls"]
    return calls


def others_cpu_s(server: ServerProcess) -> float:
    """Processor time that neither the server nor its peers here have used: what else goes on."""
    with open("/proc/stat") as stat:
        user, nice, system = (int(field) for field in stat.readline().split()[1:4])
    here = os.times()
    all_s = (user + nice + system) / os.sysconf("SC_CLK_TCK")
    return all_s - server.cpu_s() - here.user - here.system


async def late_frames(server: ServerProcess) -> int:
    """Frames that left late, so far, on the calls that go on."""
    return sum(call["late_frames"] for call in await listing(server))


async def underruns(server: ServerProcess) -> int:
    """Underruns of the calls that go on."""
    return sum(call["underruns"] for call in await listing(server))


async def measure(arguments: argparse.Namespace) -> tuple[list[Row], Search]:
    """All three questions: every row, and what the search found."""
    rows: list[Row] = []
    times = 2 if arguments.quick else arguments.times
    with server_process("live") as live:
        for door in DOORS:
            rows.append(await first_sounds(live, door, times))
        paced = next(door for door in DOORS if door.name == "audiosocket")
        most = 2 if arguments.quick else arguments.most
        found = await most_live_calls(live, paced, most, 60 * arguments.search_minutes)
    rows += found.rows
    with server_process("premade", TEXT) as premade:
        for door in DOORS:
            rows.append(await many_calls(premade, door, 4 if arguments.quick else CALLS, "premade"))
    return rows, found


def draw(rows: list[Row]) -> Any:
    """First sounds by door."""

    def on(axes: Axes) -> None:
        chosen = [row for row in rows if row["calls"] == 1 and row["late frames"] is None]
        names = [str(row["door"]) for row in chosen]
        axes.barh(names, [float(row["first sound ms"] or 0) for row in chosen], color="#0d6b64")
        axes.set_xlabel("text in to first sound at the peer, ms (one call, live synthesis)")

    return on


def main() -> None:
    """Measure and publish."""
    parser = switches(__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=7, help="turns for the median at each door")
    parser.add_argument("--most", type=int, default=512, help="live calls to stop at")
    parser.add_argument(
        "--search-minutes", type=float, default=10.0, help="for the most live calls"
    )
    arguments = parser.parse_args()
    arguments.most = min(arguments.most, MOST_CALLS)
    rows, found = asyncio.run(measure(arguments))
    dry = found.bad if found.bad <= found.most else None
    details = {"most_live_calls": found.good, "fewest_with_underruns": dry}
    publish(arguments, f"Calls: {found.describe()}", rows, details=details, draw=draw(rows))


if __name__ == "__main__":
    main()
