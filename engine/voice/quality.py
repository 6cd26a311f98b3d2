"""The quality report of a recording: each figure with a verdict in words that its owner can use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from antiphon.engine.errors import InvalidRequest
from antiphon.engine.voice.prepare import Heard, speech_samples
from antiphon.engine.voice.quality_measures import (
    RATE,
    Samples,
    bandwidth_hz,
    clipped_share,
    decay_s,
    snr_db,
)
from antiphon.engine.voice.reference import SpeakerEncoder

SPEAKER_WINDOW_S = 1.6
SPEAKER_HOP_S = 0.4
OPINION_WINDOW_S = 9.01
MOST_OPINION_WINDOWS = 3
OpinionScore = Callable[[Samples], float]
"""Predicted mean opinion score, 1 to 5, of mono 16 kHz audio."""


class Verdict(StrEnum):
    """What a figure means for the recording."""

    GOOD = "good"
    WARN = "warn"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where a figure warns and where it refuses; None: never."""

    warn: float
    refuse: float | None
    higher_is_better: bool

    def verdict(self, value: float) -> Verdict:
        """Judge a value."""

        def beyond(bound: float | None) -> bool:
            if bound is None:
                return False
            return value < bound if self.higher_is_better else value > bound

        if beyond(self.refuse):
            return Verdict.REFUSE
        return Verdict.WARN if beyond(self.warn) else Verdict.GOOD


@dataclass(frozen=True, slots=True)
class QualityThresholds:
    """Bounds of every figure. Proved on clean speech with each defect put into it."""

    speech_s: Bounds = Bounds(warn=3.0, refuse=1.5, higher_is_better=True)
    snr_db: Bounds = Bounds(warn=20.0, refuse=9.0, higher_is_better=True)
    clipped_percent: Bounds = Bounds(warn=0.05, refuse=2.0, higher_is_better=False)
    decay_s: Bounds = Bounds(warn=0.22, refuse=None, higher_is_better=False)
    """Of the fastest falls, not of the room: 0.22 s are found in rooms of 0.5 s and more."""
    bandwidth_hz: Bounds = Bounds(warn=7000.0, refuse=3000.0, higher_is_better=True)
    speaker_similarity: Bounds = Bounds(warn=0.65, refuse=0.3, higher_is_better=True)
    """Between the two most different parts of the recording."""
    opinion_score: Bounds = Bounds(warn=1.7, refuse=None, higher_is_better=True)
    """Clean synthetic speakers score 1.7 to 3.0, speech without its phases 1.3 to 1.6."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One figure."""

    measure: str
    value: float
    verdict: Verdict
    message: str
    """What is wrong and what to do; empty where it is good."""


@dataclass(frozen=True, slots=True)
class QualityReport:
    """All figures of one recording."""

    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst of all."""
        verdicts = [finding.verdict for finding in self.findings]
        for worst in (Verdict.REFUSE, Verdict.WARN):
            if worst in verdicts:
                return worst
        return Verdict.GOOD

    @property
    def messages(self) -> list[str]:
        """What is wrong, the refusals first."""
        order = (Verdict.REFUSE, Verdict.WARN)
        return [f.message for verdict in order for f in self.findings if f.verdict is verdict]

    @property
    def figures(self) -> dict[str, float]:
        """Values by the names of their measures."""
        return {finding.measure: finding.value for finding in self.findings}

    def finding(self, measure: str) -> Finding:
        """Return one figure."""
        return next(finding for finding in self.findings if finding.measure == measure)


class RecordingRefused(InvalidRequest):
    """The recording cannot become a voice; `report` says why, figure by figure."""

    code = "recording_refused"

    def __init__(self, report: QualityReport) -> None:
        super().__init__(" ".join(report.messages), field="audio")
        self.report = report


_MESSAGES = {
    "speech_s": "There are only {value:.1f} seconds of speech; speak for at least 3, better 10.",
    "snr_db": "The background is loud (speech is {value:.0f} dB above it); record in a quieter "
    "place, or ask for clean-up.",
    "clipped_percent": "The recording is overdriven ({value:.2f} % of it); lower the microphone's "
    "level and record again.",
    "decay_s": "The room echoes; go closer to the microphone or into a room with carpets and "
    "curtains.",
    "bandwidth_hz": "The recording is dull (nothing above {value:.0f} Hz); do not record over a "
    "phone line or a headset in call mode.",
    "speaker_similarity": "More than one voice seems to speak; use a recording of one person.",
    "opinion_score": "The recording sounds poor (predicted score {value:.1f} of 5).",
}


def assess(
    heard: Heard,
    speakers: SpeakerEncoder,
    thresholds: QualityThresholds | None = None,
    opinion: OpinionScore | None = None,
) -> QualityReport:
    """Measure a recording. `opinion` adds a predicted score where one is installed."""
    bounds = thresholds or QualityThresholds()
    speech = speech_samples(heard)
    values = {
        "speech_s": heard.analysis.speech_s,
        "snr_db": snr_db(heard.analysis),
        "clipped_percent": 100 * clipped_share(heard.audio.samples),
        "decay_s": decay_s(heard.analysis),
        "bandwidth_hz": bandwidth_hz(heard.audio.samples, heard.audio.rate),
        "speaker_similarity": speaker_similarity(speech, speakers),
    }
    if opinion is not None:
        values["opinion_score"] = opinion(heard.at_16k)
    findings = []
    for measure, value in values.items():
        limit: Bounds = getattr(bounds, measure)
        verdict = limit.verdict(value)
        message = "" if verdict is Verdict.GOOD else _MESSAGES[measure].format(value=value)
        findings.append(Finding(measure, round(value, 4), verdict, message))
    return QualityReport(tuple(findings))


def speaker_similarity(speech: Samples, speakers: SpeakerEncoder) -> float:
    """Return the cosine between the two voices into which the speech divides best.

    Windows of 1.6 s are divided into two groups by their embeddings (2-means from the most distant
    pair). One voice gives two similar groups; so does too little speech to divide.
    """
    window, hop = round(SPEAKER_WINDOW_S * RATE), round(SPEAKER_HOP_S * RATE)
    starts = range(0, len(speech) - window + 1, hop)
    if len(speech) < 2 * window:
        return 1.0
    embeddings = np.stack([_unit(speakers.embedding(speech[s : s + window])) for s in starts])
    similar = embeddings @ embeddings.T
    first, second = np.unravel_index(int(similar.argmin()), similar.shape)
    centres = embeddings[[first, second]]
    for _ in range(5):
        nearest = (embeddings @ centres.T).argmax(axis=1)
        if len(set(nearest.tolist())) < 2:
            return 1.0
        centres = np.stack([_unit(embeddings[nearest == group].mean(axis=0)) for group in (0, 1)])
    return float(centres[0] @ centres[1])


def _unit(vector: Samples) -> Samples:
    scaled: Samples = vector / max(float(np.linalg.norm(vector)), 1e-9)
    return scaled


def dnsmos() -> OpinionScore | None:
    """Return DNSMOS (arXiv 2110.01763) where the optional package `speechmos` is installed."""
    try:
        from speechmos import dnsmos as package
    except ImportError:
        return None

    def score(samples: Samples) -> float:
        heard = opinion_windows(np.clip(samples, -1.0, 1.0))
        return float(np.mean([package.run(each, sr=RATE)["ovrl_mos"] for each in heard]))

    return score


def opinion_windows(samples: Samples) -> list[Samples]:
    """Cut up to three windows of the length that DNSMOS hears, spread over the recording.

    The package itself would move on by a second: 21 calls for 30 s. What is shorter is repeated.
    """
    size = round(OPINION_WINDOW_S * RATE)
    count = min(MOST_OPINION_WINDOWS, max(1, len(samples) // size))
    whole = np.resize(samples, max(size, len(samples)))
    starts = np.linspace(0, len(whole) - size, count).astype(int)
    return [whole[start : start + size] for start in starts]
