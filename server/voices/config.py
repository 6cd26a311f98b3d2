"""The part of the configuration that is about voices of recordings."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from antiphon.engine.voice.consent import SPEECH_PURPOSE


class VoicesSection(BaseModel):
    """Voices that this deployment made of recordings, besides those of its models."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)

    folder: Path | None = None
    """Where their `.voice` files lie; made if it is not there. None: no such voices."""
    purpose: str = Field(default=SPEECH_PURPOSE, min_length=1, max_length=200)
    """What this deployment uses voices for: a consent's scope must name it, or `any`."""
    max_voices: int = Field(default=1_000, ge=1, le=10_000)
    """Voices in the folder; no more are taken in."""
