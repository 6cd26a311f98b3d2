from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.engine.errors import WatermarkUnavailable
from antiphon.engine.watermark.load import load_watermark


@pytest.mark.parametrize("name", ["perth", "none"])
def test_loads_by_name(name: str) -> None:
    assert load_watermark(name).name == name


@pytest.mark.parametrize(
    ("name", "payload", "weights", "says"),
    [
        ("", None, None, "There is no watermark"),
        ("Perth", None, None, "perth, audioseal, none"),
        ("audioseal", None, None, "path of its weights"),
        ("perth", 7, None, "no payload"),
        ("none", None, Path("x"), "no weights"),
        ("audioseal", 1 << 16, Path("x"), "16 bits"),
    ],
)
def test_what_cannot_be_loaded_says_why(
    name: str, payload: int | None, weights: Path | None, says: str
) -> None:
    with pytest.raises(WatermarkUnavailable, match=says):
        load_watermark(name, payload=payload, weights=weights)
