"""When things happened in one turn, and when its listener runs dry."""

from __future__ import annotations

import math
import time


class TurnClock:
    """Times of one turn, by the monotonic clock."""

    def __init__(self, mix_ratio: tuple[int, int]) -> None:
        self.samples = 0
        """Samples handed out so far."""
        self._mix_ratio = mix_ratio
        self._first_text: float | None = None
        self._ids_came: list[tuple[int, float]] = []
        self._ids = 0
        self._dry_at: float | None = None

    def text_came(self) -> None:
        """Take note that the caller pushed text."""
        if self._first_text is None:
            self._first_text = time.monotonic()

    def ids_came(self, count: int) -> None:
        """Take note that the LM was given text ids."""
        if self._dry_at is None:
            self._ids += count
            self._ids_came.append((self._ids, time.monotonic()))

    def first_hop_ready(self, tokens: int) -> dict[str, float]:
        """Split the wait for the first hop; empty for later ones.

        `text` is the time until the text came that the hop's tokens need in the bi-stream layout
        (whole blocks of it), `lm` the time since then.
        """
        if self._dry_at is not None or self._first_text is None:
            return {}
        text, speech = self._mix_ratio
        needed = min(self._ids, text * math.ceil(tokens / speech))
        came = next((at for ids, at in self._ids_came if ids >= needed), self._first_text)
        return {"text": came - self._first_text, "lm": time.monotonic() - came}

    def audio_left(self, samples: int, rate: int) -> None:
        """Take note that samples were handed out."""
        now = time.monotonic()
        self.samples += samples
        self._dry_at = max(self._dry_at or now, now) + samples / rate

    @property
    def runs_dry_at(self) -> float | None:
        """When a listener who plays at once has heard everything; None before the first audio."""
        return self._dry_at
