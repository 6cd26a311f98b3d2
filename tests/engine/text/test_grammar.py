"""Grammars are chosen by name; what is missing is named."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from antiphon.engine.errors import InvalidConfiguration
from antiphon.engine.text.grammar import TtsfrdGrammar, WetextGrammar, load_grammar
from antiphon.engine.text.whole_text import WholeTextFrontEnd


class _ClosedEngine:
    """Has the calls of `ttsfrd`, whose package is closed and not to be had here."""

    def initialize(self, resource: str) -> bool:
        return (Path(resource) / "model").is_file()

    def set_lang_type(self, kind: str) -> None:
        assert kind == "pinyinvg"

    def do_voicegen_frd(self, text: str) -> str:
        if "坏" in text:
            return "no answer"
        return json.dumps({"sentences": [{"text": text.replace("5", "五")}]})


def test_ttsfrd_is_asked_as_upstream_asks_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("ttsfrd")
    module.TtsFrontendEngine = _ClosedEngine  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ttsfrd", module)
    with pytest.raises(InvalidConfiguration) as refused:
        load_grammar("ttsfrd", tmp_path)
    assert refused.value.field == "text.ttsfrd_resource"
    (tmp_path / "model").touch()
    grammar = load_grammar("ttsfrd", tmp_path)
    assert isinstance(grammar, TtsfrdGrammar)
    assert grammar.name == "ttsfrd"
    assert WholeTextFrontEnd(len, grammar=grammar).pieces("我有5元。") == ["我有五元。"]
    assert grammar.write_out("坏5", "zh") == "坏5"
    assert grammar.write_out("今日は5時", "ja") == "今日は5時"


@pytest.mark.parametrize(
    ("name", "folder", "field"),
    [
        ("ttsfrd", None, "text.ttsfrd_resource"),
        ("ttsfrd", "absent", "text.ttsfrd_resource"),
        ("ttsfrd", ".", "text.grammar"),
        ("other", None, "text.grammar"),
    ],
)
def test_what_is_missing_is_named(
    name: str, folder: str | None, field: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidConfiguration) as refused:
        load_grammar(name, tmp_path / folder if folder else None)
    assert refused.value.field == field


def test_none_is_a_choice() -> None:
    assert load_grammar("none") is None
    pytest.importorskip("wetext")
    assert isinstance(load_grammar("wetext"), WetextGrammar)
