"""Into which pieces the vocoder's work is cut; any cut gives the same samples."""

from __future__ import annotations

from dataclasses import dataclass

MOST_FRAMES = 128
"""2.6 s of audio between two looks at who else waits."""
CAPTURED_SIZES = (1, 2, 4, 8, 16, 32, 50, 100)
"""Few enough to capture, and a chunk's 50 frames are one. A first hop of 8 tokens is 8 + 1."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """Sizes of pieces, in mel frames.

    A stream may be cut anywhere (see `HiFT.advance`), so a length for which no call was captured is
    made of several that were, instead of being padded. On a CPU shapes are free and calls are not:
    any size.
    """

    sizes: tuple[int, ...] = ()
    """Those that a piece may have, with 1 among them; empty: any."""
    most: int = MOST_FRAMES
    """Frames that are done in one go."""

    def next(self, frames: int, look_ahead: int, *, final: bool, room: int | None = None) -> int:
        """Frames of the next piece, out of `frames` that can be done; 0 where there are none.

        `final`: the mel ends with them, so that all but the last piece leave `look_ahead` behind
        them. `room`: at most so many.
        """
        most = self.most if room is None else min(room, self.most)
        if frames <= 0 or most <= 0:
            return 0
        if final and frames <= (look_ahead if self.sizes else max(look_ahead, most)):
            return frames
        limit = min(frames - look_ahead if final else frames, most)
        return max((size for size in self.sizes if size <= limit), default=limit)
