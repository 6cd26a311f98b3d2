"""Chinese and Japanese numbers, dates and units in words, by packages that know the grammar."""

from __future__ import annotations

import importlib
import json
import re
import threading
from pathlib import Path
from typing import Any, Protocol

from antiphon.engine.errors import InvalidConfiguration

MAX_GRAMMAR_CHARACTERS = 120
"""Grammars take time in the square of the length; longer sentences are given to them in parts."""

_END = r"[。？！；.?!;\n]"
_PARTS = re.compile(rf"(?:(?!{_END}).){{1,{MAX_GRAMMAR_CHARACTERS}}}{_END}*|{_END}+", re.DOTALL)


class Grammar(Protocol):
    """Numbers, dates and units in words, for Chinese (`zh`) and Japanese (`ja`)."""

    @property
    def name(self) -> str:
        """By which it is configured and announced."""

    def write_out(self, text: str, language: str) -> str:
        """Return the text as it is read. May be called from any thread."""


class WetextGrammar:
    """`wetext`, whose grammars are in its wheel."""

    name = "wetext"

    def __init__(self) -> None:
        """Raise `InvalidConfiguration` if the package is not installed."""
        try:
            self._module: Any = importlib.import_module("wetext")
        except ImportError as error:
            raise InvalidConfiguration(
                "Whole texts in Chinese or Japanese need the package wetext (the extra "
                "`languages`); set text.grammar to none to go without.",
                field="text.grammar",
            ) from error
        self._normalizers: dict[str, Any] = {}
        self._turn = threading.Lock()

    def write_out(self, text: str, language: str) -> str:
        """See `Grammar.write_out`. Text that the grammar cannot parse is left as it is."""
        with self._turn:
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


class TtsfrdGrammar:
    """`ttsfrd`, the closed front end of the published models. It reads Chinese; Japanese numbers
    stay digits."""

    name = "ttsfrd"

    def __init__(self, resource: Path) -> None:
        """Load it with its resource folder, which is a download of its own.

        Raises:
            InvalidConfiguration: the package or the folder is not there, or will not load.
        """
        if not resource.is_dir():
            raise InvalidConfiguration(
                f"The resource folder {resource} of ttsfrd does not exist.",
                field="text.ttsfrd_resource",
            )
        try:
            engine: Any = importlib.import_module("ttsfrd").TtsFrontendEngine()
        except (ImportError, AttributeError) as error:
            raise InvalidConfiguration(
                "The package ttsfrd is not installed; it comes with CosyVoice's own downloads.",
                field="text.grammar",
            ) from error
        if engine.initialize(str(resource)) is not True:
            raise InvalidConfiguration(
                f"ttsfrd cannot use the resource folder {resource}.", field="text.ttsfrd_resource"
            )
        engine.set_lang_type("pinyinvg")
        self._engine = engine
        self._turn = threading.Lock()

    def write_out(self, text: str, language: str) -> str:
        """See `Grammar.write_out`. What is no answer leaves the text as it is."""
        if language != "zh" or not text.strip():
            return text
        with self._turn:
            answer = self._engine.do_voicegen_frd(text)
        try:
            return "".join(str(sentence["text"]) for sentence in json.loads(answer)["sentences"])
        except (ValueError, KeyError, TypeError):
            return text


def load_grammar(name: str, ttsfrd_resource: Path | None = None) -> Grammar | None:
    """Load a grammar by its name: `wetext`, `ttsfrd` or `none`.

    Raises:
        InvalidConfiguration: it is not installed, or another name.
    """
    if name == "none":
        return None
    if name == "wetext":
        return WetextGrammar()
    if name == "ttsfrd" and ttsfrd_resource is not None:
        return TtsfrdGrammar(ttsfrd_resource)
    if name == "ttsfrd":
        raise InvalidConfiguration(
            "The grammar ttsfrd needs the path of its resource folder.",
            field="text.ttsfrd_resource",
        )
    raise InvalidConfiguration(
        "A grammar is one of wetext, ttsfrd, none.", field="text.grammar", limit="wetext, ttsfrd"
    )
