"""Whole texts for the published models: written out language by language, then cut into pieces."""

from __future__ import annotations

import re
from collections.abc import Callable

from antiphon.engine.text import upstream_split
from antiphon.engine.text.bpe_stream import SPOKEN_TAGS
from antiphon.engine.text.grammar import Grammar
from antiphon.engine.text.languages import is_kana, spans
from antiphon.engine.text.markdown import tag_pattern
from antiphon.engine.text.normalizer import Spelling, StreamingNormalizer
from antiphon.engine.text.unicode_text import drop_silent
from antiphon.engine.text.validate import validate_text

_BARS = re.compile(r"<\||\|>|\|")


class WholeTextFrontEnd:
    """One text in, the pieces to be spoken out. Without a grammar, Chinese and Japanese numbers
    stay digits (the published models read some)."""

    def __init__(
        self,
        count_tokens: Callable[[str], int],
        *,
        grammar: Grammar | None = None,
        tags: frozenset[str] = SPOKEN_TAGS,
        language: str | None = None,
    ) -> None:
        """Make it for one checkpoint and language.

        Args:
            count_tokens: length of a text in the checkpoint's tokenizer.
            grammar: writes out Chinese and Japanese.
            tags: what is performed and not read.
            language: BCP 47, where the caller knows it. Han characters without kana are then
                Japanese in `ja`, and numbers among Latin letters stay digits where it is another
                language than English.
        """
        primary = (language or "").split("-")[0].lower()
        english = primary in ("", "en", "zh", "yue", "ja", "ko")
        self._spelling = Spelling.ENGLISH_MIXED if english else Spelling.AS_WRITTEN
        self._han = "ja" if primary == "ja" else None
        self._count_tokens = count_tokens
        self._grammar = grammar
        self._tags = tags
        self._tag = tag_pattern(tags)

    def pieces(self, text: str) -> list[str]:
        """Return pieces of about 60 to 80 units (`upstream_split`); none if nothing can be spoken.

        Raises:
            InvalidRequest: control characters or surrogates in the text.
        """
        validate_text(text)
        # Tokens that steer the model are written `<|…|>`; a caller's text has no bars.
        plain = drop_silent(_BARS.sub(" ", text)).strip()
        east_asian = upstream_split.has_chinese(plain) or any(map(is_kana, plain))
        written = self._write_out(plain)
        if east_asian:
            written = upstream_split.tidy(written, chinese=True)
        return upstream_split.split(written, self._count_tokens, chinese=east_asian)

    def _write_out(self, text: str) -> str:
        written: list[str] = []
        rest = 0
        for tag in self._tag.finditer(text) if self._tag else ():
            written += [self._read(text[rest : tag.start()]), tag.group()]
            rest = tag.end()
        return "".join([*written, self._read(text[rest:])]).strip()

    def _read(self, text: str) -> str:
        return "".join(self._read_span(span.text, span.language) for span in spans(text, self._han))

    def _read_span(self, text: str, language: str) -> str:
        if language in ("zh", "ja"):
            return self._grammar.write_out(text, language) if self._grammar else text
        if language == "ko":
            return text
        normalizer = StreamingNormalizer(self._tags, self._spelling)
        words = [*normalizer.push(text), *normalizer.end()]
        spoken = "".join(f" {w.text}{w.mark}" if w.text else w.mark for w in words)[1:]
        before = " " if text[:1].isspace() else ""
        after = " " if text[-1:].isspace() else ""
        return before + spoken + after if spoken else before
