"""A recording becomes a voice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from antiphon.engine.audio_file import DecodedAudio, decode_audio
from antiphon.engine.errors import InvalidRequest, UnsupportedFeature
from antiphon.engine.voice.cleanup import CleanUp, DeepFilterNet
from antiphon.engine.voice.consent import Consent
from antiphon.engine.voice.prepare import Heard, set_level, speech_samples, trim_silence
from antiphon.engine.voice.quality import (
    OpinionScore,
    QualityReport,
    QualityThresholds,
    RecordingRefused,
    Verdict,
    assess,
)
from antiphon.engine.voice.record import Voice
from antiphon.engine.voice.reference import MAX_REFERENCE_S, ReferenceExtractor

MIN_REFERENCE_S = 3.0
MAX_FILE_BYTES = 16 << 20
"""30 s of 8 channels at 192 kHz in 16 bits are 92 MB; nobody records a voice so."""
LONGEST_UPLOAD_S = 120.0
"""Decoded at most, so that a recording of a minute is refused for its length and by its seconds."""

Transcriber = Callable[[DecodedAudio, str], str]
"""Says what is spoken in a recording, whose language is given where it is known."""


@dataclass(frozen=True, slots=True)
class EnrolmentSettings:
    """What a deployment decides about recordings."""

    thresholds: QualityThresholds = field(default_factory=QualityThresholds)
    clean_up: CleanUp | None = None
    """None: DeepFilterNet where it is installed."""
    opinion: OpinionScore | None = None
    """Predicted opinion score, e.g. `quality.dnsmos()`; None leaves it out of the report."""
    transcriber: Transcriber | None = None
    """Supplies transcripts that are not given; without one such voices are cross-lingual only."""


@dataclass(frozen=True, slots=True)
class Enrolment:
    """A new voice with what was found out about its recording."""

    voice: Voice
    report: QualityReport
    """Of the recording that the voice was made from."""
    before: QualityReport | None = None
    """Of the recording as it came, where it was cleaned."""


def enrol(
    audio: bytes | Path,
    *,
    name: str,
    model: str,
    extractor: ReferenceExtractor,
    consent: Consent | None,
    transcript: str | None = None,
    language: str = "",
    clean_up: bool | None = None,
    settings: EnrolmentSettings | None = None,
) -> Enrolment:
    """Make a voice of a recording of 3 to 30 s. Takes seconds; not for an event loop.

    `clean_up` asks for it or forbids it; None leaves it to the noise: a recording whose SNR would
    earn a warning is cleaned where that is installed. `consent=None` makes a voice that nobody can
    speak with until a consent is recorded.

    Raises:
        InvalidRequest: a file that cannot be used (see `decode_audio`), too short, too long or
            below 16 kHz; a name or transcript out of bounds.
        RecordingRefused: the report refuses it.
        UnsupportedFeature: clean-up was asked for and is not installed.
    """
    settings = settings or EnrolmentSettings()
    decoded = decode_audio(audio, max_seconds=LONGEST_UPLOAD_S, max_bytes=MAX_FILE_BYTES)
    heard = Heard.of(_checked(decoded))
    report = _assess(heard, extractor, settings)
    before = None
    if clean_up or (clean_up is None and report.finding("snr_db").verdict is not Verdict.GOOD):
        cleaner = _cleaner(settings, asked_for=bool(clean_up))
        if cleaner is not None:
            heard = Heard.of(cleaner(heard.audio))
            before, report = report, _assess(heard, extractor, settings)
    if report.verdict is Verdict.REFUSE:
        raise RecordingRefused(report)
    ready = set_level(trim_silence(heard), speech_samples(heard))
    if transcript is None and settings.transcriber is not None:
        transcript = settings.transcriber(ready, language)
    voice = Voice(
        name=name,
        features=extractor.prompt(ready),
        model=model,
        fingerprint=extractor.fingerprint,
        consent=consent,
        transcript=(transcript or "").strip(),
        language=language,
        quality=report.figures,
    )
    return Enrolment(voice, report, before)


def _checked(audio: DecodedAudio) -> DecodedAudio:
    seconds = len(audio.samples) / audio.rate
    if seconds < MIN_REFERENCE_S:
        raise InvalidRequest(
            f"The recording is {seconds:.1f} s long; at least 3 s are needed.",
            field="audio",
            limit=MIN_REFERENCE_S,
        )
    if seconds > MAX_REFERENCE_S:
        raise InvalidRequest(
            f"The recording is {seconds:.1f} s long; at most 30 s can be used.",
            field="audio",
            limit=MAX_REFERENCE_S,
        )
    if not audio.samples.any():
        raise InvalidRequest("The recording is silent.", field="audio")
    return audio


def _assess(
    heard: Heard, extractor: ReferenceExtractor, settings: EnrolmentSettings
) -> QualityReport:
    return assess(heard, extractor.speakers, settings.thresholds, settings.opinion)


def _cleaner(settings: EnrolmentSettings, *, asked_for: bool) -> CleanUp | None:
    if settings.clean_up is not None:
        return settings.clean_up
    try:
        return DeepFilterNet()
    except UnsupportedFeature:
        if asked_for:
            raise
        return None
