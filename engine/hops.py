"""How many speech tokens the flow gets at a time.

A hop of h tokens is spoken once h + 3 tokens are there (right context). Small hops are heard
early but cost more for each second of audio; the schedule starts small and grows. It belongs to
one session: a value with no link to any other.
"""

from __future__ import annotations

from dataclasses import dataclass

from antiphon.engine.acoustic.interface import CHUNK_TOKENS, LOOK_AHEAD_TOKENS
from antiphon.engine.errors import InvalidConfiguration, InvalidRequest

SMALLEST_HOP = 5
"""Four tokens are 160 ms, all of which the vocoder holds back: five is the first that sounds."""
LARGEST_HOP = 200
"""Eight seconds of speech: beyond it nothing is saved and a cancel has more to throw away."""
SECONDS_A_TOKEN = 0.04
GROWTHS = (1.0, 4.0)
"""Beyond it, the LM cannot have the next hop ready while the one before it is heard."""
LONGEST_LEAD_S = 60.0


@dataclass(frozen=True, slots=True)
class HopSettings:
    """The schedule of a deployment; a request may override all but the margin.

    Raises:
        InvalidConfiguration: a value outside its bounds, naming the field.
    """

    first_hop: int = 8
    """Smaller sounds earlier; below about 8 the border of the first hop becomes measurable."""
    max_hop: int = 25
    """One attention chunk. Larger saves little and lets a stalled listener hold more audio."""
    growth: float = 2.2
    """Factor from one hop to the next. With 1 every hop costs as much as the first."""
    margin_s: float = 0.25
    """Time before the listener runs dry at which a hop goes ahead with what the LM has made."""

    def __post_init__(self) -> None:
        for name, value in (("first_hop", self.first_hop), ("max_hop", self.max_hop)):
            if not SMALLEST_HOP <= value <= LARGEST_HOP:
                raise InvalidConfiguration(
                    f"{name} is {value}, but a hop has {SMALLEST_HOP} to {LARGEST_HOP} tokens",
                    field=name,
                    limit=f"{SMALLEST_HOP}..{LARGEST_HOP}",
                )
        if self.max_hop < self.first_hop:
            raise InvalidConfiguration(
                f"max_hop is {self.max_hop}, but first_hop is {self.first_hop}",
                field="max_hop",
                limit=self.first_hop,
            )
        if not GROWTHS[0] <= self.growth <= GROWTHS[1]:
            raise InvalidConfiguration(
                f"growth is {self.growth}, but must be 1 to 4", field="growth", limit="1..4"
            )
        if not 0.0 <= self.margin_s <= 5.0:
            raise InvalidConfiguration(
                f"margin_s is {self.margin_s}, but must be 0 to 5 seconds",
                field="margin_s",
                limit="0..5",
            )

    def asked(
        self, first_hop: int | None, max_hop: int | None, growth: float | None
    ) -> HopSettings:
        """Return the schedule of a request; None is the deployment's value.

        Raises:
            InvalidRequest: a value out of its bounds, or a first hop that is larger than the later
                ones; `field` is the one that the request names.
        """
        first = self.first_hop if first_hop is None else first_hop
        most = self.max_hop if max_hop is None else max_hop
        if first > most:
            raise InvalidRequest(
                f"first_hop is {first}, but max_hop is {most}: the first hop is the smallest.",
                field="max_hop" if first_hop is None else "first_hop",
                limit=first if first_hop is None else most,
            )
        try:
            return HopSettings(
                first, most, self.growth if growth is None else growth, self.margin_s
            )
        except InvalidConfiguration as error:
            field = "hop_growth" if error.field == "growth" else error.field
            raise InvalidRequest(error.message, field=field, limit=error.limit) from error


class HopPlan:
    """The schedule of one stretch of speech: how much to wait for, and how long.

    After the first hop, hops are cut where an attention chunk of the flow ends, as counted in
    tokens given to it: what lies before such a border is never computed again.
    """

    def __init__(self, settings: HopSettings) -> None:
        self._settings = settings
        self._given = 0
        self._last = 0

    @property
    def first(self) -> bool:
        """Whether nothing was given to the flow yet."""
        return not self._given

    def wanted(self) -> int:
        """Tokens to wait for: the first hop and its look-ahead, or a later hop."""
        if self.first:
            return self._settings.first_hop + LOOK_AHEAD_TOKENS
        grown = min(self._settings.max_hop, max(1, round(self._last * self._settings.growth)))
        to_border = CHUNK_TOKENS - self._given % CHUNK_TOKENS
        if to_border > grown:
            return grown
        return to_border + (grown - to_border) // CHUNK_TOKENS * CHUNK_TOKENS

    def patience_s(self, runs_dry_at: float | None, now: float) -> float | None:
        """Seconds to wait for `wanted()` before going ahead with less; None for no limit.

        The first hop of a stretch waits for all of its tokens: with nothing to bridge to, less
        would only make it the sooner followed by a gap.
        """
        if runs_dry_at is None or self.first:
            return None
        return max(0.0, runs_dry_at - self._settings.margin_s - now)

    def took(self, tokens: int) -> None:
        """Take note that tokens were given to the flow."""
        self._given += tokens
        self._last = max(self._last, tokens)
