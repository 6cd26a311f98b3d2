"""How many turns may speak at once."""

from __future__ import annotations

from antiphon.engine.errors import Overloaded


class Slot:
    """Permission for one turn; released once."""

    def __init__(self, admission: Admission) -> None:
        self._admission: Admission | None = admission

    def release(self) -> None:
        """Give it back. Idempotent."""
        if self._admission is not None:
            self._admission.taken -= 1
            self._admission = None


class Admission:
    """Counts slots of one kind (turns, connections). Past the limit callers are refused at once."""

    def __init__(self, limit: int, retry_after_s: float, what: str) -> None:
        self.limit = limit
        self.taken = 0
        self.retry_after_s = retry_after_s
        self._what = what

    def acquire(self) -> Slot:
        """Take a slot.

        Raises:
            Overloaded: all are taken.
        """
        if self.taken >= self.limit:
            raise Overloaded(
                f"All {self.limit} {self._what} of this server are in use; try again in "
                f"{self.retry_after_s:g} s.",
                retry_after_s=self.retry_after_s,
                limit=self.limit,
            )
        self.taken += 1
        return Slot(self)
