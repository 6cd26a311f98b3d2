"""A server with the preset engine and the real watermark, for tests of the whole path."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from antiphon.engine.preset.engine import PresetEngine
from antiphon.engine.watermark.interface import Watermark
from antiphon.server.config import WatermarkSection
from antiphon.server.loading import load_watermark
from tests.server.harness import Running, serving


@cache
def watermark() -> Watermark:
    """Loaded once: its weights do not change."""
    return load_watermark(WatermarkSection())


@asynccontextmanager
async def preset_server(overrides: Mapping[str, Any] | None = None) -> AsyncIterator[Running]:
    mark = watermark()
    async with serving(
        {"watermark.name": mark.name, **(overrides or {})},
        engine=PresetEngine(mark),
        watermark=mark,
        voice="heart",
    ) as server:
        yield server
