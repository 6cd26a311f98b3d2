"""Where a call's conversation writes: the playout, from which the call's own clock takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.engine.interface import FinishReason
from antiphon.server.errors import SlowReader
from antiphon.server.turn_events import (
    Audio,
    Done,
    Effect,
    Feed,
    Opened,
    Progress,
    Ready,
    Refused,
)

if TYPE_CHECKING:
    from antiphon.server.calls.call import Call


class CallOutlet:
    """The outlet of one call (`Outlet`)."""

    def __init__(self, call: Call) -> None:
        self._call = call

    async def room(self, turn: int) -> None:
        """Wait until little enough speech waits to be heard. The call's own clock empties it."""
        await self._call.playout.room()

    async def writable(self) -> None:
        """The playout always takes more; `room` bounds it."""

    async def write(self, effect: Effect) -> None:
        """Put an effect where it belongs in time."""
        call = self._call
        match effect:
            case Audio():
                call.playout.put(effect)
            case Done(report) if report.finish_reason == FinishReason.CANCELLED:
                call.drop_speech()
                call.tell(effect)
            case Progress():
                call.foretell(effect)
                call.playout.put(effect)
            case Ready() | Refused(turn=None):
                call.tell(effect)
            case _:
                # The end of the connection too: what was said before it is heard first.
                call.playout.put(effect)

    def note(self, effect: Opened | Feed) -> None:
        """Keep a turn's text for its messages."""
        self._call.tell(effect)

    def stalled(self, error: SlowReader) -> None:
        """Never: this outlet does not wait for readers."""
        self._call.hang_up(error.code)
