"""What new voices are heard with, as a deployment configures it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.engine.errors import InvalidConfiguration
from antiphon.server.voices.config import VoicesSection

if TYPE_CHECKING:
    from antiphon.engine.voice.enrol import EnrolmentSettings


def enrolment_settings(section: VoicesSection) -> Callable[[], EnrolmentSettings]:
    """Check that everything is there, and return what loads it at the first enrolment.

    Raises:
        InvalidConfiguration: a package or a file that is named and missing.
    """
    if section.asr == "faster-whisper":
        _require("asr", section.asr, "faster_whisper", "asr_model", section.asr_model)
    if section.clean_up == "demucs":
        _require("clean_up", section.clean_up, "demucs", "demucs_model", section.demucs_model)
    return lambda: _load(section)


def _require(field: str, value: str, module: str, path_field: str, path: Path | None) -> None:
    if importlib.util.find_spec(module) is None:
        raise InvalidConfiguration(
            f"voices.{field} is {value}, whose package is not installed.", field=f"voices.{field}"
        )
    if path is None or not path.exists():
        raise InvalidConfiguration(
            f"voices.{field} is {value}, which needs its weights on this disk; nothing is "
            f"downloaded. {'Name them' if path is None else f'There are none at {path}'}.",
            field=f"voices.{path_field}",
        )


def _load(section: VoicesSection) -> EnrolmentSettings:
    from antiphon.engine.voice.enrol import EnrolmentSettings
    from antiphon.engine.voice.quality import dnsmos

    transcriber = clean_up = None
    if section.asr == "faster-whisper":
        from antiphon.engine.voice.transcribe import WhisperTranscriber

        assert section.asr_model is not None
        transcriber = WhisperTranscriber(section.asr_model)
    if section.clean_up == "demucs":
        from antiphon.engine.voice.demucs import Demucs

        assert section.demucs_model is not None
        clean_up = Demucs(section.demucs_model)
    return EnrolmentSettings(opinion=dnsmos(), transcriber=transcriber, clean_up=clean_up)
