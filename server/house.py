"""What all connections of a server share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from antiphon.server.admission import Admission
from antiphon.server.auth import Keyring
from antiphon.server.config import Config
from antiphon.server.conversation import Conversation
from antiphon.server.engines import EngineSet
from antiphon.server.errors import NotReady
from antiphon.server.metrics import Metrics
from antiphon.server.speaking import Resources
from antiphon.server.turn_events import CutOff, Drain

_LAST_WORDS_S = 2.0


class House:
    """Configuration, engines, keys, limits and metrics, and who is being served."""

    def __init__(self, config: Config, engines: EngineSet) -> None:
        limits = config.server.limits
        self.config = config
        self.engines = engines
        self.keys = Keyring(key.get_secret_value() for key in config.server.api_keys)
        self.metrics = Metrics()
        self.resources = Resources(
            Admission(limits.max_sessions, limits.retry_after_s, "sessions"), self.metrics
        )
        self.connections = Admission(limits.max_connections, limits.retry_after_s, "connections")
        self.warm = False
        self.draining = False
        self._conversations: set[Conversation] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self.metrics.watch_text_queue(self._unspoken_characters)

    def check_open(self) -> None:
        """Refuse new work while it cannot be done.

        Raises:
            NotReady: the engines are still loading, or the server is draining.
        """
        retry_after_s = self.config.server.limits.retry_after_s
        if self.draining:
            raise NotReady("The server is about to stop.", retry_after_s=retry_after_s)
        if not self.warm:
            raise NotReady("The engines are not ready yet.", retry_after_s=retry_after_s)

    def check_ready(self) -> None:
        """Refuse to be given work while any of it cannot be done.

        Raises:
            NotReady: see `check_open`; or a model is away, while the others speak on.
        """
        self.check_open()
        away = self.engines.away
        if away:
            raise NotReady(
                f"The model {away[0]} is being restarted.",
                retry_after_s=self.config.server.limits.retry_after_s,
            )

    @contextmanager
    def conversing(self, conversation: Conversation) -> Iterator[None]:
        """Know a conversation for as long as it lasts."""
        self._conversations.add(conversation)
        self._empty.clear()
        self.metrics.connections.inc()
        try:
            yield
        finally:
            self.metrics.connections.dec()
            self._conversations.discard(conversation)
            if not self._conversations:
                self._empty.set()

    async def drain(self) -> None:
        """Start nothing new, let open turns end within the limit, then end the others."""
        self.draining = True
        for conversation in list(self._conversations):
            await conversation.submit(Drain())
        try:
            async with asyncio.timeout(self.config.server.limits.drain_s):
                await self._empty.wait()
        except TimeoutError:
            await self._cut_off()

    async def _cut_off(self) -> None:
        """Tell those whose turns are still open, and give their last events a moment to leave."""
        for conversation in list(self._conversations):
            await conversation.submit(CutOff())
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_S):
                await self._empty.wait()

    def _unspoken_characters(self) -> int:
        return sum(each.machine.unspoken_characters for each in self._conversations)
