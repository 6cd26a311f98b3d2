"""Whole texts for the published models: written out language by language, then cut into pieces."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any, Protocol

from antiphon.engine.errors import InvalidConfiguration
from antiphon.engine.text import upstream_split
from antiphon.engine.text.bpe_stream import SPOKEN_TAGS
from antiphon.engine.text.languages import is_kana, spans
from antiphon.engine.text.markdown import tag_pattern
from antiphon.engine.text.normalizer import Spelling, StreamingNormalizer
from antiphon.engine.text.unicode_text import drop_silent
from antiphon.engine.text.validate import validate_text

MAX_GRAMMAR_CHARACTERS = 120
"""Grammars take time in the square of the length; longer sentences are given to them in parts."""

_END = r"[。？！；.?!;\n]"
_PARTS = re.compile(rf"(?:(?!{_END}).){{1,{MAX_GRAMMAR_CHARACTERS}}}{_END}*|{_END}+", re.DOTALL)
_BARS = re.compile(r"<\||\|>|\|")


class Grammar(Protocol):
    """Numbers, dates and units in words, for Chinese (`zh`) and Japanese (`ja`)."""

    def write_out(self, text: str, language: str) -> str:
        """Return the text as it is read."""


class WetextGrammar:
    """`wetext`, whose grammars are in its wheel."""

    def __init__(self) -> None:
        """Raise `InvalidConfiguration` if the package is not installed."""
        try:
            self._module: Any = importlib.import_module("wetext")
        except ImportError as error:
            raise InvalidConfiguration(
                "whole texts in Chinese or Japanese need the package wetext",
                field="text.grammar",
            ) from error
        self._normalizers: dict[str, Any] = {}

    def write_out(self, text: str, language: str) -> str:
        """See `Grammar.write_out`. Text that the grammar cannot parse is left as it is."""
        if language not in self._normalizers:
            options = {"remove_erhua": False} if language == "zh" else {}
            make = self._module.Normalizer
            self._normalizers[language] = make(lang=language, operator="tn", **options)
        return "".join(self._part(part, language) for part in _PARTS.findall(text))

    def _part(self, part: str, language: str) -> str:
        try:
            return str(self._normalizers[language].normalize(part))
        except AssertionError:
            # How wetext answers to what its grammar has no path for.
            return part


class WholeTextFrontEnd:
    """One text in, the pieces to be spoken out. Without a grammar, Chinese and Japanese numbers
    stay digits (the published models read some)."""

    def __init__(
        self,
        count_tokens: Callable[[str], int],
        *,
        grammar: Grammar | None = None,
        tags: frozenset[str] = SPOKEN_TAGS,
    ) -> None:
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
        return "".join(self._read_span(span.text, span.language) for span in spans(text))

    def _read_span(self, text: str, language: str) -> str:
        if language in ("zh", "ja"):
            return self._grammar.write_out(text, language) if self._grammar else text
        if language == "ko":
            return text
        normalizer = StreamingNormalizer(self._tags, Spelling.ENGLISH_MIXED)
        words = [*normalizer.push(text), *normalizer.end()]
        spoken = "".join(f" {w.text}{w.mark}" if w.text else w.mark for w in words)[1:]
        before = " " if text[:1].isspace() else ""
        after = " " if text[-1:].isspace() else ""
        return before + spoken + after if spoken else before
