from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.server.errors import MalformedMessage
from antiphon.server.json_message import json_object

WHOLE = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | WHOLE


@given(st.dictionaries(WHOLE, VALUES | st.lists(VALUES)))
def test_an_object_is_read_as_it_is(value: dict[str, object]) -> None:
    assert json_object(json.dumps(value)) == value
    assert json_object(json.dumps(value, ensure_ascii=False)) == value


@pytest.mark.parametrize(
    "message",
    ["", "[]", "1", "null", "{", '{"a":Infinity}', '{"a":NaN}', '{"a":1e999}', '{"a":"\\ud800"}',
     '{"\\udfff":1}', '{"a":"\udc80"}', '{"a":' * 50_000, '{"a":"\\ud800\\u0041"}'],
)  # fmt: skip
def test_what_could_not_be_handed_on_is_refused(message: str) -> None:
    with pytest.raises(MalformedMessage):
        json_object(message)


@given(st.text())
def test_no_text_raises_anything_else(message: str) -> None:
    try:
        json_object(message)
    except MalformedMessage:
        return
