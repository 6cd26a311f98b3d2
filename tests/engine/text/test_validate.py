from __future__ import annotations

import pytest

from antiphon.engine.errors import InvalidRequest
from antiphon.engine.text.validate import validate_text


@pytest.mark.parametrize("text", ["", "a\tb\r\nc", "é 你 😀", "\u200d\ufe0f", "\x85\u2028"])
def test_text_that_may_be_spoken(text: str) -> None:
    validate_text(text)


@pytest.mark.parametrize("bad", ["\x00", "\x07", "\x1b", "\x7f", "\x9b", "\ud83d"])
def test_controls_and_surrogates_are_refused_by_name_and_place(bad: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        validate_text(f"secret{bad}", field="input")
    assert caught.value.field == "input"
    assert f"U+{ord(bad):04X}" in caught.value.message
    assert "character 6" in caught.value.message
    assert "secret" not in caught.value.message
