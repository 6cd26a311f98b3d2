"""Whole texts as a `TextStream`: nothing is certain before the end, then everything is."""

from __future__ import annotations

from antiphon.engine.errors import InvalidRequest
from antiphon.engine.text.text_stream import TextPiece, TextTokenizer
from antiphon.engine.text.validate import validate_text
from antiphon.engine.text.whole_text import WholeTextFrontEnd

MAX_WHOLE_TEXT = 100_000
"""Characters. Grammars read texts as a whole; longer ones are sent in parts. A server refuses texts
beyond its `text_queue_chars` before, which is less unless it is raised."""


class WholeTextStream:
    """One turn's text, read when it is complete. Each piece is a segment of its own, as the
    published models were tuned with."""

    def __init__(self, front_end: WholeTextFrontEnd, tokenizer: TextTokenizer) -> None:
        self._front_end = front_end
        self._tokenizer = tokenizer
        self._waiting: list[str] = []
        self._characters = 0
        self._before = 0

    def push(self, text: str) -> list[TextPiece]:
        """See `TextStream.push`; nothing is certain yet.

        Raises:
            InvalidRequest: control characters, or more than `MAX_WHOLE_TEXT` in all.
        """
        validate_text(text)
        if self._characters + len(text) > MAX_WHOLE_TEXT:
            raise InvalidRequest(
                f"A whole text has at most {MAX_WHOLE_TEXT} characters.",
                field="text",
                limit=MAX_WHOLE_TEXT,
            )
        self._waiting.append(text)
        self._characters += len(text)
        return []

    def flush(self) -> list[TextPiece]:
        """See `TextStream.flush`: what came so far is read as a text of its own."""
        pieces = self._front_end.pieces("".join(self._waiting))
        self._waiting.clear()
        return self._encoded(pieces)

    def end(self) -> list[TextPiece]:
        """See `TextStream.end`."""
        return self.flush()

    def _encoded(self, pieces: list[str]) -> list[TextPiece]:
        """Pieces with the place they end at in the source: in proportion to their length, since a
        number in words has no place of its own."""
        start, self._before = self._before, self._characters
        total, done, encoded = sum(map(len, pieces)), 0, []
        for piece in pieces:
            done += len(piece)
            end = start + (self._characters - start) * done // total
            ids = tuple(self._tokenizer.encode(piece))
            encoded.append(TextPiece(ids, piece, end, clause_end=True, sentence_end=True))
        return encoded
