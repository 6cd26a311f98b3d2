"""What the server sees of an engine that can learn new voices."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from antiphon.engine.voice.consent import Consent
from antiphon.engine.voice.enrol import Enrolment


@runtime_checkable
class EnrollingEngine(Protocol):
    """An `Engine` that also makes voices of recordings."""

    async def enrol(
        self,
        audio: bytes,
        *,
        name: str,
        consent: Consent,
        transcript: str | None = None,
        language: str = "",
        clean_up: bool | None = None,
    ) -> Enrolment:
        """Make a voice of an audio file of 3 to 30 s; it is not stored. Takes seconds.

        Without a transcript the voice is used across languages only. `clean_up` asks for it or
        forbids it; None leaves it to the noise.

        Raises:
            RecordingRefused: the quality report refuses the recording.
            InvalidRequest, UnsupportedFeature: naming the field.
        """
