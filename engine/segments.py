"""Cuts a long turn into stretches that the speech LM was trained on.

Each segment is one LM request; the acoustic state runs on through the cuts, so they are places
where the LM starts afresh and nothing else.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

from antiphon.engine.errors import InvalidConfiguration
from antiphon.engine.text.text_stream import TextPiece
from antiphon.engine.turn import Flush


@dataclass(frozen=True, slots=True)
class SegmentLimits:
    """When a segment ends, in words.

    Raises:
        InvalidConfiguration: bounds that do not grow, naming the field.
    """

    sentence_words: int = 3
    """A sentence ends its segment if it has so many words; a shorter one takes the next along."""
    clause_words: int = 12
    """From here on any pause mark ends it."""
    most_words: int = 17
    """Here it ends anyway; the nano checkpoint heard no longer ones in training."""

    def __post_init__(self) -> None:
        if not 1 <= self.sentence_words <= self.clause_words <= self.most_words:
            raise InvalidConfiguration(
                "segment limits must satisfy 1 <= sentence_words <= clause_words <= most_words",
                field="segments",
            )

    def end_after(self, piece: TextPiece, words: int) -> bool:
        """Whether a segment ends with this piece, its `words`-th word."""
        if piece.sentence_end:
            return words >= self.sentence_words
        return piece.clause_end and words >= self.clause_words


class Segment:
    """The pieces of one segment as they arrive; iterated once.

    `flush` is known when they are exhausted: whether the caller wants it spoken without waiting
    for more.
    """

    def __init__(
        self,
        first: TextPiece | Flush,
        rest: AsyncIterator[TextPiece | Flush],
        limits: SegmentLimits,
    ) -> None:
        self.flush = False
        self.empty = isinstance(first, Flush)
        self.next: TextPiece | None = None
        """The piece that begins the following segment, where it had to be looked at."""
        self._first = first
        self._rest = rest
        self._limits = limits

    async def __aiter__(self) -> AsyncGenerator[TextPiece, None]:
        piece: TextPiece | Flush | None = self._first
        words = 0
        while piece is not None:
            if isinstance(piece, Flush):
                self.flush = True
                return
            has_word = any(map(str.isalnum, piece.text))
            if has_word and words == self._limits.most_words:
                self.next = piece
                return
            words += has_word
            yield piece
            if self._limits.end_after(piece, words):
                return
            piece = await anext(self._rest, None)


async def segments(
    pieces: AsyncIterator[TextPiece | Flush], limits: SegmentLimits
) -> AsyncGenerator[Segment, None]:
    """Yield the segments of a turn; each must be exhausted before the next is asked for.

    A flush with nothing before it makes an empty segment. A mark that comes after its word never
    begins a segment.
    """
    first: TextPiece | Flush | None = await anext(pieces, None)
    while first is not None:
        segment = Segment(first, pieces, limits)
        yield segment
        first = segment.next or await anext(pieces, None)
