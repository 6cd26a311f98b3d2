"""What recordings are heard with is configured, checked at start, and used at enrolment."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from antiphon.engine.checkpoint import open_checkpoint
from antiphon.engine.errors import InvalidConfiguration
from antiphon.engine.voice.consent import Consent
from antiphon.engine.voice.enroller import Enroller
from antiphon.engine.voice.transcribe import WhisperTranscriber
from antiphon.server.config import load_config
from antiphon.server.voices.config import VoicesSection
from antiphon.server.voices.hearing import enrolment_settings
from bench.speech import RATE_HZ, Speaker, random_warp
from tests import golden
from tests.engine.test_audio_file import encode

CONSENT = Consent("Ada Example", datetime(2026, 1, 1, tzinfo=UTC), ("speech",))


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"asr": "faster-whisper"}, "voices.asr_model"),
        ({"asr": "faster-whisper", "asr_model": "absent"}, "voices.asr_model"),
        ({"clean_up": "demucs"}, "voices.demucs_model"),
        ({"clean_up": "demucs", "demucs_model": "absent"}, "voices.demucs_model"),
    ],
)
def test_weights_that_are_missing_are_named(values: dict[str, Any], field: str) -> None:
    pytest.importorskip("faster_whisper")
    pytest.importorskip("demucs")
    with pytest.raises(InvalidConfiguration) as refused:
        enrolment_settings(VoicesSection(**values))
    assert refused.value.field == field


def test_packages_that_are_missing_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for field, values in (
        ("voices.asr", {"asr": "faster-whisper", "asr_model": tmp_path}),
        ("voices.clean_up", {"clean_up": "demucs", "demucs_model": tmp_path}),
    ):
        with pytest.raises(InvalidConfiguration) as refused:
            enrolment_settings(VoicesSection(**values))
        assert refused.value.field == field


def test_by_default_nothing_listens_for_words() -> None:
    made = enrolment_settings(VoicesSection())()
    assert (made.transcriber, made.clean_up) == (None, None)


def test_a_grammar_and_its_resource_belong_together(tmp_path: Path) -> None:
    for grammar, resource in (("ttsfrd", None), ("wetext", str(tmp_path))):
        with pytest.raises(InvalidConfiguration) as refused:
            load_config(overrides={"text": {"grammar": grammar, "ttsfrd_resource": resource}})
        assert refused.value.field == "text.ttsfrd_resource"


@pytest.mark.slow
async def test_a_recording_without_transcript_gets_one_by_ear() -> None:
    pytest.importorskip("faster_whisper")
    asr = pytest.importorskip("bench.asr")
    section = VoicesSection(asr="faster-whisper", asr_model=asr.model_directory())
    settings = enrolment_settings(section)
    assert isinstance(settings().transcriber, WhisperTranscriber)
    speaker = Speaker()
    said = "The garden gate was open. Nobody had seen the old dog all morning."
    samples = speaker.speak(said, random_warp(np.random.default_rng(4)), seed=0)
    enroller = Enroller(open_checkpoint(golden.model_dir(3)), "tiny", settings)
    audio = encode(samples, "wav", "pcm_s16le", RATE_HZ, "mono")
    heard = (await enroller.enrol(audio, name="ada", consent=CONSENT, language="en")).voice
    assert {"garden", "morning"} & set(heard.transcript.lower().replace(".", "").split())
    silent = Enroller(open_checkpoint(golden.model_dir(3)), "tiny")
    made = await silent.enrol(audio, name="ada", consent=CONSENT, language="en")
    assert made.voice.transcript == ""
