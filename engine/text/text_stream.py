"""Text pieces in, token ids out: normaliser, pronunciation and tokenizer as one stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from antiphon.engine.text.normalizer import StreamingNormalizer
from antiphon.engine.text.phone_stream import ArpabetFrontEnd, PhonePiece
from antiphon.engine.text.validate import validate_text


class TextTokenizer(Protocol):
    """The checkpoint's tokenizer."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, special tokens recognised, none added."""


@dataclass(frozen=True, slots=True)
class TextPiece:
    """Ids that are certain, in order. Each is one word's, or a mark's that came after its word."""

    ids: tuple[int, ...]
    text: str
    """As spoken, for captions."""
    source_end: int
    """Characters of the pushed text that are dealt with once these ids are spoken."""
    clause_end: bool
    """A pause follows: long turns may be cut here."""
    sentence_end: bool


class TextStream(Protocol):
    """One turn's text front end. Pure; owned by one session."""

    def push(self, text: str) -> list[TextPiece]:
        """Take text of any length and return what is certain now.

        Raises:
            InvalidRequest: control characters or surrogates in the text; nothing is taken.
        """

    def flush(self) -> list[TextPiece]:
        """Return what is held back, read as if nothing followed; more may be pushed."""

    def end(self) -> list[TextPiece]:
        """Return the rest. No more may be pushed."""


class ArpabetTextStream:
    """For checkpoints whose text tokens are phones (nano)."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._normalizer = StreamingNormalizer()
        self._phones = ArpabetFrontEnd()

    def push(self, text: str) -> list[TextPiece]:
        """See `TextStream.push`."""
        validate_text(text)
        return self._encode(self._phones.push(self._normalizer.push(text)))

    def flush(self) -> list[TextPiece]:
        """See `TextStream.flush`."""
        pieces = self._phones.push(self._normalizer.flush())
        return self._encode([*pieces, *self._phones.flush()])

    def end(self) -> list[TextPiece]:
        """See `TextStream.end`."""
        pieces = self._phones.push(self._normalizer.end())
        return self._encode([*pieces, *self._phones.end()])

    def _encode(self, pieces: Sequence[PhonePiece]) -> list[TextPiece]:
        return [
            TextPiece(
                ids=tuple(self._tokenizer.encode(piece.phones)),
                text=piece.text,
                source_end=piece.source_end,
                clause_end=bool(piece.mark),
                sentence_end=piece.mark in (".", "!", "?"),
            )
            for piece in pieces
        ]
