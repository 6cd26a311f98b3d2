"""Transcripts by ear, where the optional package and a model are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.engine.audio_file import DecodedAudio, decode_audio
from antiphon.engine.errors import InvalidRequest
from antiphon.engine.voice.transcribe import WhisperTranscriber
from tests.engine.voice.recordings import nano_file


def test_a_directory_without_a_model_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("faster_whisper")
    with pytest.raises(InvalidRequest) as caught:
        WhisperTranscriber(tmp_path)
    assert caught.value.field == "model"


@pytest.mark.slow
def test_what_is_said_is_heard() -> None:
    pytest.importorskip("faster_whisper")
    asr = pytest.importorskip("bench.asr")
    audio: DecodedAudio = decode_audio(nano_file("prompts/seen_spk000.wav"))
    said = WhisperTranscriber(asr.model_directory())(audio, "en").lower()
    assert "programmers" in said
