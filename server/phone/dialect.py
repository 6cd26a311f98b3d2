"""What a WebSocket phone bridge must know of a provider: how its messages are read and written."""

from __future__ import annotations

from typing import Protocol

from antiphon.server.phone.events import PhoneEvent


class Dialect(Protocol):
    """One provider's language, for one call. Free of I/O."""

    name: str
    lead_s: float
    """How far ahead of the ear audio may be sent. The peer buffers it; a barge-in clears it."""
    frames_per_message: int
    """20 ms frames in a message, where a provider wants longer ones."""
    has_marks: bool
    """Whether the peer says what it has played. If not, our own clock stands in."""
    subprotocol: str | None

    def read(self, message: str | bytes) -> PhoneEvent:
        """Understand a message.

        Raises:
            MalformedMessage, UnsupportedFeature: it cannot be understood or served.
        """

    def media(self, payload: bytes) -> str | bytes:
        """The message that carries audio."""

    def mark(self, name: str) -> str | None:
        """The message that asks for `Heard(name)`; None without marks."""

    def clear(self) -> str | None:
        """The message that drops what the peer has not played; None where there is none."""

    def hang_up(self) -> str | None:
        """The message that ends the call; None where closing the socket does."""
