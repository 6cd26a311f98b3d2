"""The part of the configuration that is about voices of recordings."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

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
    asr: Literal["none", "faster-whisper"] = "none"
    """Writes down what is said in recordings that come without a transcript. Without it such
    voices are used across languages only."""
    asr_model: Path | None = None
    """Directory of a Whisper model in CTranslate2's format."""
    clean_up: Literal["deepfilternet", "demucs"] = "deepfilternet"
    """Takes noise out of recordings; demucs also takes out music and needs seconds."""
    demucs_model: Path | None = None
    """Safetensors file of a Demucs network with a source `vocals`."""
