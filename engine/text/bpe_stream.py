"""The text stream of the published CosyVoice 2 and 3 checkpoints: words → byte-pair ids."""

from __future__ import annotations

from collections.abc import Iterable

from antiphon.engine.text.chunks import is_ideograph
from antiphon.engine.text.normalizer import Spelling, StreamingNormalizer
from antiphon.engine.text.text_stream import TextPiece, TextTokenizer
from antiphon.engine.text.validate import validate_text
from antiphon.engine.text.words import Word

SPOKEN_TAGS = frozenset(
    {
        *("[breath]", "[noise]", "[laughter]", "[cough]", "[clucking]", "[accent]", "[sigh]"),
        *("[quick_breath]", "[hissing]", "[vocalized-noise]", "[lipsmack]", "[mn]"),
        *("<strong>", "</strong>", "<laughter>", "</laughter>"),
    }
)
"""What a caller may write to be performed rather than read. Tokens that steer the model
(`<|endofprompt|>`, `<|im_start|>`) are not among them: a caller's text must not end the prompt that
the operator or the voice has set."""

_WIDE_MARKS = str.maketrans(".,!?;:", "。，！？；：")


class BpeTextStream:
    """One turn. Each word is encoded with the space before it, so streamed and whole are equal.

    `language` other than English (BCP 47) leaves numbers as they are written: the published models
    were trained to read some, and an English reading would be wrong. Whole texts in those languages
    go through `whole_text` instead.
    """

    def __init__(
        self,
        tokenizer: TextTokenizer,
        *,
        language: str | None = None,
        tags: frozenset[str] = SPOKEN_TAGS,
    ) -> None:
        english = language is None or language.split("-")[0] == "en"
        spelling = Spelling.ENGLISH_MIXED if english else Spelling.AS_WRITTEN
        self._tokenizer = tokenizer
        self._tags = tags
        self._normalizer = StreamingNormalizer(tags, spelling)
        self._last = ""

    def push(self, text: str) -> list[TextPiece]:
        """See `TextStream.push`."""
        validate_text(text)
        return self._encode(self._normalizer.push(text))

    def flush(self) -> list[TextPiece]:
        """See `TextStream.flush`."""
        return self._encode(self._normalizer.flush())

    def end(self) -> list[TextPiece]:
        """See `TextStream.end`."""
        return self._encode(self._normalizer.end())

    def _encode(self, words: Iterable[Word]) -> list[TextPiece]:
        return [self._piece(word) for word in words]

    def _piece(self, word: Word) -> TextPiece:
        wide = _is_wide((word.text or self._last)[-1:])
        mark = word.mark.translate(_WIDE_MARKS) if wide else word.mark
        # All steering tokens are written `<|…|>`; without bars no text can be mistaken for one.
        written = word.text.replace("|", "") + mark
        text = (" " if word.text and self._spaced(word.text) else "") + written
        self._last = word.text or self._last
        return TextPiece(
            ids=tuple(self._tokenizer.encode(text)),
            text=written,
            source_end=word.source_end,
            clause_end=bool(word.mark),
            sentence_end=word.mark in (".", "!", "?"),
        )

    def _spaced(self, text: str) -> bool:
        """Not at the start, inside a pair of tags, between tags that are sounds of one word
        (Pinyin), or beside characters written without spaces."""
        if not self._last or (text.startswith("</") and text in self._tags):
            return False
        if self._last in self._tags and self._last[0] == "<" and self._last[1] != "/":
            return False
        sounds = self._tags - SPOKEN_TAGS
        if self._last in sounds and text in sounds:
            return False
        return not (_is_wide(self._last[-1]) or _is_wide(text[0]))


def _is_wide(character: str) -> bool:
    """Han characters and Japanese kana."""
    return bool(character) and (is_ideograph(character) or "\u3040" <= character <= "\u30ff")
