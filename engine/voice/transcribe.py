"""Transcripts of reference recordings by Whisper, through the optional package `faster-whisper`."""

from __future__ import annotations

from pathlib import Path

from antiphon.engine.audio_file import DecodedAudio
from antiphon.engine.errors import InvalidRequest, UnsupportedFeature
from antiphon.engine.voice.features import WHISPER_RATE
from antiphon.engine.voice.resample import resample


class WhisperTranscriber:
    """A `Transcriber` (see `enrol.py`) over a model directory in CTranslate2's format."""

    def __init__(self, model: Path, *, threads: int = 1) -> None:
        """Load a model from disk; nothing is downloaded.

        Raises:
            UnsupportedFeature: the package is not installed.
            InvalidRequest: there is no model in the directory.
        """
        try:
            from faster_whisper import WhisperModel
        except ImportError as error:
            raise UnsupportedFeature(
                "Transcripts by ear need the package faster-whisper.", field="transcript"
            ) from error
        if not (model / "model.bin").is_file():
            raise InvalidRequest("There is no Whisper model in that directory.", field="model")
        self._model = WhisperModel(
            str(model),
            device="cpu",
            compute_type="int8",
            cpu_threads=threads,
            local_files_only=True,
        )

    def __call__(self, audio: DecodedAudio, language: str = "") -> str:
        """Return what is said; the language (BCP 47) is heard too where it is not told."""
        heard = resample(audio.samples, audio.rate, WHISPER_RATE)
        segments, _ = self._model.transcribe(
            heard, language=_whisper_language(language), beam_size=1
        )
        return " ".join(segment.text.strip() for segment in segments).strip()


def _whisper_language(language: str) -> str | None:
    primary = language.split("-")[0].lower()
    return primary or None
