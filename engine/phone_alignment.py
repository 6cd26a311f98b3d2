"""Written phones against heard ones, both as they come.

A speech LM leaves out, adds or changes a few phones in a hundred, sometimes a whole word.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum, auto
from itertools import islice
from typing import Final

_NEAR: Final = 3
"""Phones of each kind that show a single slip: what slipped, and two that fit again."""
_FAR_HEARD: Final = 8
_FAR_WRITTEN: Final = 16
"""What is looked at where more than one phone slipped: enough to find back over a word left out."""
_MOST_WAITING: Final = 64
"""Heard phones that may wait for their text. A block of the bi-stream layout has no more than its
12 speech tokens before it asks for text, so only a runaway comes here."""
_CHANGED: Final = 1.5
"""Cost of a changed phone; one left out or added costs 1, so that a phone is not called changed
where moving by one makes two fit."""


class Step(Enum):
    """What became of the next written phone, the next heard one, or both."""

    SAID = auto()
    """Both: the written phone was heard, perhaps as another."""
    LEFT_OUT = auto()
    """The written one was not said."""
    ADDED = auto()
    """The heard one was not written."""


class PhoneAlignment:
    """Alignment of one segment. It does not depend on when written and heard phones come.

    Phones that fit are matched at once; a slip waits until what follows shows which kind it is.
    """

    def __init__(self) -> None:
        self._written: deque[int] = deque()
        self._heard: deque[int] = deque()
        self._ended = False

    @property
    def waiting(self) -> int:
        """Heard phones of which nothing is known yet."""
        return len(self._heard)

    def write(self, phones: Iterable[int]) -> None:
        """Add written phones."""
        self._written.extend(phones)

    def hear(self, phone: int) -> None:
        """Add a heard phone."""
        self._heard.append(phone)

    def end(self) -> None:
        """No more phones of either kind will come."""
        self._ended = True

    def steps(self) -> Iterator[Step]:
        """Yield what is certain now, in order. Written phones may be left over at the end."""
        while (step := self._next()) is not None:
            if step is not Step.ADDED:
                self._written.popleft()
            if step is not Step.LEFT_OUT:
                self._heard.popleft()
            yield step

    def _next(self) -> Step | None:
        heard, written = self._heard, self._written
        if not heard:
            return None
        enough = self._ended or len(heard) > _MOST_WAITING
        if not written:
            return Step.ADDED if enough else None
        if heard[0] == written[0]:
            return Step.SAID
        if len(heard) >= _NEAR and len(written) >= _NEAR:
            slip = _single_slip(list(islice(written, _NEAR)), list(islice(heard, _NEAR)))
            if slip is not None:
                return slip
        far = len(heard) >= _FAR_HEARD and len(written) >= _FAR_WRITTEN
        if not far and not enough:
            return None
        return _best_step(
            list(islice(written, _FAR_WRITTEN)),
            list(islice(heard, _FAR_HEARD)),
            whole=self._ended and not far,
        )


def _single_slip(written: list[int], heard: list[int]) -> Step | None:
    """The slip behind which two phones fit again."""
    if heard[1:] == written[1:]:
        return Step.SAID
    if heard[:-1] == written[1:]:
        return Step.LEFT_OUT
    if heard[1:] == written[:-1]:
        return Step.ADDED
    return None


def _best_step(written: list[int], heard: list[int], *, whole: bool) -> Step:
    """First step of the cheapest alignment of all of `heard` with a beginning of `written`.

    `whole`: with all of `written`.
    """
    # Costs from each place on to the end of `heard`, for the heard phone behind the present one.
    behind = [float(len(written) - at) if whole else 0.0 for at in range(len(written) + 1)]
    step = Step.ADDED
    for place in range(len(heard) - 1, -1, -1):
        costs = [float(len(heard) - place)] * (len(written) + 1)
        for at in range(len(written) - 1, -1, -1):
            changed = 0.0 if heard[place] == written[at] else _CHANGED
            said, left_out = changed + behind[at + 1], 1 + costs[at + 1]
            added = 1 + behind[at]
            costs[at] = min(said, left_out, added)
            if costs[at] == said:
                step = Step.SAID
            else:
                step = Step.LEFT_OUT if costs[at] == left_out else Step.ADDED
        behind = costs
    return step
