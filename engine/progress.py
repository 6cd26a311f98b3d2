"""Which words the audio handed out so far has spoken."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from antiphon.engine.hops import SECONDS_A_TOKEN
from antiphon.engine.interface import SpeechProgress
from antiphon.engine.text.text_stream import TextPiece

LAG = 1.5
"""The nano checkpoint's data has 2 speech tokens for a text id at a mix of 12 to 8, so 1.3; a guess
on the late side keeps a word from being reported before it is heard."""


@dataclass(slots=True)
class _Segment:
    first_token: int
    pieces: list[TextPiece] = field(default_factory=list)
    ids: int = 0
    tokens: int = 0
    ended: bool = False


class ProgressTracker(Protocol):
    """Places the words of one turn in time. Owned by its session."""

    def begin_segment(self) -> None:
        """Begin a segment; the one before it ended."""

    def piece(self, piece: TextPiece) -> None:
        """Take note of a piece that the LM was given."""

    def token(self, code: int) -> None:
        """Take note of a speech token that the LM made."""

    def end_segment(self) -> None:
        """Take note that the LM spoke all of the segment's text. Idempotent."""

    def until(self, spoken_s: float) -> list[SpeechProgress]:
        """Return the words that ended within the first `spoken_s` seconds, each once, in order."""


class ProportionalProgress:
    """See `ProgressTracker`; for checkpoints whose speech tokens do not say what sounds.

    Within a segment, speech tokens are shared out in proportion to text ids: exact at segment
    borders, an estimate between them. While a segment is still being spoken its length is
    estimated by the rate of those before it, and its last word is not reported.
    """

    def __init__(
        self, text_ids: int, speech_tokens: int, seconds_a_token: float = SECONDS_A_TOKEN
    ) -> None:
        self._seconds_a_token = seconds_a_token
        # A block's text is spoken in its own speech tokens and some more: the ratio is chosen so
        # that speech lags behind text.
        self._rate = LAG * speech_tokens / text_ids
        self._tokens = 0
        self._segments: list[_Segment] = []
        self._reported_s = 0.0

    def begin_segment(self) -> None:
        """See `ProgressTracker`."""
        self.end_segment()
        self._segments.append(_Segment(self._tokens))

    def piece(self, piece: TextPiece) -> None:
        """See `ProgressTracker`."""
        segment = self._segments[-1]
        segment.pieces.append(piece)
        segment.ids += len(piece.ids)

    def token(self, code: int) -> None:
        """See `ProgressTracker`."""
        self._segments[-1].tokens += 1
        self._tokens += 1

    def end_segment(self) -> None:
        """See `ProgressTracker`."""
        if not self._segments or self._segments[-1].ended:
            return
        segment = self._segments[-1]
        segment.ended = True
        if segment.ids and segment.tokens:
            self._rate = segment.tokens / segment.ids

    def until(self, spoken_s: float) -> list[SpeechProgress]:
        """See `ProgressTracker`."""
        found: list[SpeechProgress] = []
        while self._segments:
            segment = self._segments[0]
            self._from_segment(segment, spoken_s, found)
            if segment.pieces or not segment.ended:
                break
            self._segments.pop(0)
        return found

    def _from_segment(
        self, segment: _Segment, spoken_s: float, found: list[SpeechProgress]
    ) -> None:
        rate = segment.tokens / segment.ids if segment.ended and segment.ids else self._rate
        ids_left = segment.ids - sum(len(piece.ids) for piece in segment.pieces)
        while segment.pieces and (segment.ended or len(segment.pieces) > 1):
            piece = segment.pieces[0]
            ids_left += len(piece.ids)
            end_s = (segment.first_token + ids_left * rate) * self._seconds_a_token
            # Sums of floats must not withhold the last word of a segment.
            if end_s > spoken_s + 1e-6:
                return
            segment.pieces.pop(0)
            end_s = max(end_s, self._reported_s)
            found.append(SpeechProgress(piece.text, piece.source_end, self._reported_s, end_s))
            self._reported_s = end_s
