"""The calls of a server: limits, who may see them, and how they begin and end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import structlog

from antiphon.engine.errors import Overloaded
from antiphon.server.admission import Admission
from antiphon.server.calls.call import Call
from antiphon.server.calls.spec import CallSpec
from antiphon.server.config import Config, Limits
from antiphon.server.errors import UnknownCall
from antiphon.server.house import House

_CLOSE_S = 5.0

_log = structlog.get_logger("antiphon.calls")


class Calls:
    """Opens, lists and ends calls."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.config = house.config.calls
        self._limits = _limits(house.config)
        self._admission = Admission(
            self.config.max_calls, house.config.server.limits.retry_after_s, "calls"
        )
        self._calls: dict[str, Call] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._calls)

    @asynccontextmanager
    async def open(self, spec: CallSpec) -> AsyncIterator[Call]:
        """A call for as long as the block lasts; it begins with the greeting, if there is one.

        Raises:
            NotReady, Overloaded: no more calls now.
            UnknownVoice, UnsupportedFeature: it was asked for a voice that is not here.
        """
        self.house.check_open()
        self._check_owner(spec.owner)
        self.house.engines.resolve(spec.wanted)
        slot = self._admission.acquire()
        call: Call | None = None
        log = _log.bind(peer=spec.peer)
        try:
            call = Call(self.house, spec, self._limits)
            self._calls[call.id] = call
            log = log.bind(call=call.id)
            log.info("call_began")
            going_on = self.house.metrics.calls.labels(spec.peer).track_inprogress()
            with self.house.conversing(call.conversation), going_on:
                await call.configure()
                if self.config.greeting:
                    await call.say(self.config.greeting)
                yield call
        finally:
            if call is not None:
                await call.close()
                self._calls.pop(call.id, None)
                self._changed.set()
                log.info("call_ended", reason=call.end_reason)
            slot.release()

    def find(self, call_id: str, owner: str = "") -> Call:
        """A call of this owner.

        Raises:
            UnknownCall: the same for one that is another's and one that never was.
        """
        seen = [call for call in self._calls.values() if _visible(call, owner)]
        by_id = [call for call in seen if call.id == call_id]
        by_alias = [call for call in seen if call.spec.alias and call.spec.alias == call_id]
        if not by_id and not by_alias:
            raise UnknownCall("No such call goes on here.", field="id")
        return (by_id or by_alias)[0]

    async def close(self) -> None:
        """End every call and wait for it, within limits."""
        for call in list(self._calls.values()):
            call.hang_up("the server stops")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                while self._calls:
                    self._changed.clear()
                    await self._changed.wait()

    def listing(self, owner: str = "") -> list[dict[str, Any]]:
        """The calls of an owner (or all that are nobody's), oldest first."""
        return [call.describe() for call in self._calls.values() if _visible(call, owner)]

    def _check_owner(self, owner: str) -> None:
        most = self.config.max_calls_per_key
        if owner and sum(call.spec.owner == owner for call in self._calls.values()) >= most:
            raise Overloaded(
                f"This key has {most} calls already.",
                retry_after_s=self.house.config.server.limits.retry_after_s,
                limit=most,
            )


def _visible(call: Call, owner: str) -> bool:
    """Whether an owner's keys reach a call. Names are the peers' choice, so another's call by the
    same name must not stand before one's own."""
    return not owner or call.spec.owner in ("", owner)


def _limits(config: Config) -> Limits:
    """A call has one mouth, so one context; and it may be silent for long."""
    calls = config.calls
    return config.server.limits.model_copy(
        update={
            "max_contexts": 1,
            "idle_s": calls.idle_s,
            "connection_s": calls.call_s,
        }
    )
