"""A bound on memory that streams hold each for itself."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

from antiphon.engine.errors import Overloaded

RETRY_AFTER_S = 1.0


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Charge:
    """Bytes that are taken for as long as anyone holds this."""

    nbytes: int


class MemoryBudget:
    """Counts what is held; the last part that was charged may go over the limit."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._used = 0

    @property
    def used_bytes(self) -> int:
        """Bytes that are held now."""
        return self._used

    def require_room(self) -> None:
        """Return if there is room for more.

        Raises:
            Overloaded: there is none.
        """
        if self._used >= self._limit:
            raise Overloaded(
                f"The acoustic memory is full ({self._limit >> 20} MiB).",
                retry_after_s=RETRY_AFTER_S,
                limit=self._limit,
            )

    def charge(self, nbytes: int) -> Charge:
        """Count bytes until the returned object goes."""
        held = Charge(nbytes)
        self._used += nbytes
        weakref.finalize(held, self._release, nbytes)
        return held

    def _release(self, nbytes: int) -> None:
        self._used -= nbytes
