"""A voice made from reference audio, as stored and as the engine takes it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from antiphon.engine.checkpoint.voices import acoustic_prompt
from antiphon.engine.errors import ConsentRequired, InvalidRequest, UnsupportedFeature
from antiphon.engine.voice.consent import SPEECH_PURPOSE, Consent
from antiphon.engine.voice.reference import ReferenceFeatures
from antiphon.engine.voice.voice import AcousticPrompt, LMPrompt

MAX_TRANSCRIPT = 2_000
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True, eq=False)
class Voice:
    """Features of one reference recording with its provenance."""

    name: str
    features: ReferenceFeatures
    model: str
    """Model the features were made for, by the name users know."""
    fingerprint: str
    """`ReferenceExtractor.fingerprint` of that model."""
    consent: Consent | None
    transcript: str = ""
    """What is said in the recording; empty where unknown, then only cross-lingual use works."""
    language: str = ""
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    quality: Mapping[str, float] = field(default_factory=dict)
    """Figures of the quality report at enrolment."""

    def __post_init__(self) -> None:
        check_voice_name(self.name)
        if len(self.transcript) > MAX_TRANSCRIPT:
            raise InvalidRequest(
                f"The transcript is longer than {MAX_TRANSCRIPT} characters.",
                field="transcript",
                limit=MAX_TRANSCRIPT,
            )

    def acoustic_prompt(self) -> AcousticPrompt:
        """Return what the flow hears."""
        heard = self.features
        return acoustic_prompt(heard.tokens, heard.mel, heard.embedding)

    def lm_prompt(self, text_ids: Sequence[int] = (), *, speech: bool = True) -> LMPrompt:
        """Return what the speech LM hears; without `speech` in cross-lingual and instruct use."""
        tokens = tuple(self.features.tokens.tolist()) if speech else ()
        return LMPrompt(tuple(text_ids), tokens, tuple(self.features.embedding.tolist()))

    def require_model(self, fingerprint: str, model: str) -> None:
        """Return if the voice was made for a model of this fingerprint.

        Raises:
            UnsupportedFeature: it was made for another one.
        """
        if fingerprint != self.fingerprint:
            raise UnsupportedFeature(
                f"The voice {self.name} was made for {self.model} and cannot be used with {model}; "
                "enrol its recording again with this model.",
                field="voice",
            )

    def require_consent(
        self, *, purpose: str = SPEECH_PURPOSE, now: datetime | None = None
    ) -> None:
        """Return if the person's consent covers this use now.

        Raises:
            ConsentRequired: missing, not yet valid, past its date or out of scope.
        """
        if self.consent is None:
            raise ConsentRequired(
                f"There is no record of consent to use the voice {self.name}.", field="consent"
            )
        self.consent.require(purpose, now or datetime.now(UTC))


def check_voice_name(name: str) -> str:
    """Return a name that is safe as a file name and in a URL.

    Raises:
        InvalidRequest: it is not.
    """
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            "A voice's name has 1 to 64 characters of a-z, 0-9, - and _, the first a letter or "
            "digit.",
            field="name",
            limit=64,
        )
    return name
