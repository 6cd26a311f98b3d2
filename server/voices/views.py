"""Voices and their reports as JSON types, for the routes and the command line."""

from __future__ import annotations

from typing import Any

from antiphon.engine.voice.enrol import Enrolment
from antiphon.engine.voice.quality import QualityReport
from antiphon.engine.voice.record import Voice


def record_fields(voice: Voice) -> dict[str, Any]:
    """What a voice's file says of it."""
    return {
        "name": voice.name,
        "model": voice.model,
        "language": voice.language,
        "mode": "zero_shot" if voice.transcript else "cross_lingual",
        "transcript": voice.transcript,
        "consent": None if voice.consent is None else voice.consent.to_json(),
        "created": voice.created.isoformat(),
        "quality": dict(voice.quality),
    }


def enrolment_fields(made: Enrolment) -> dict[str, Any]:
    """The report of a new voice, and that of its recording before it was cleaned."""
    before = None if made.before is None else report_fields(made.before)
    return {"report": report_fields(made.report), "before_clean_up": before}


def report_fields(report: QualityReport) -> dict[str, Any]:
    """A quality report."""
    return {
        "verdict": report.verdict.value,
        "messages": report.messages,
        "findings": [
            {
                "measure": finding.measure,
                "value": finding.value,
                "verdict": finding.verdict.value,
                "message": finding.message,
            }
            for finding in report.findings
        ],
    }
