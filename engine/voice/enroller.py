"""Makes voices of recordings for one checkpoint, one at a time, beside those who are spoken to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from antiphon.engine.audio_file import DecodedAudio
from antiphon.engine.checkpoint import Checkpoint
from antiphon.engine.errors import UnsupportedFeature
from antiphon.engine.voice.consent import Consent
from antiphon.engine.voice.enrol import Enrolment, EnrolmentSettings, enrol
from antiphon.engine.voice.quality import dnsmos
from antiphon.engine.voice.reference import (
    SPEAKER_ENCODER,
    ReferenceExtractor,
    can_hear,
    tokenizer_name,
)


class Enroller:
    """Loads the networks that hear recordings (0.5 GB in the published models) at first use."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        model: str,
        settings: Callable[[], EnrolmentSettings] | None = None,
    ) -> None:
        """Nothing is loaded yet. `model` is the name by which users know the checkpoint.

        `settings` makes what recordings are heard with, at the first of them; by default that is
        DNSMOS where it is installed, and DeepFilterNet for noise.
        """
        self._checkpoint = checkpoint
        self._model = model
        self._make_settings = settings
        self._settings: EnrolmentSettings | None = None
        self._extractor: ReferenceExtractor | None = None
        self._turn = asyncio.Lock()

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
        """Make a voice of a recording; see `engine.voice.enrol.enrol`.

        Raises:
            InvalidRequest, RecordingRefused, UnsupportedFeature: as there; also
                `UnsupportedFeature` where the checkpoint lacks the networks that hear recordings.
        """
        async with self._turn:
            return await asyncio.to_thread(
                self._enrol, audio, name, consent, transcript, language, clean_up
            )

    async def speech_tokens(self, audio: DecodedAudio) -> NDArray[np.int64]:
        """Return the speech tokens of a recording of at most 30 s, (tokens,).

        Raises:
            InvalidRequest: a recording that cannot be heard.
            UnsupportedFeature: the checkpoint lacks the networks that hear recordings.
        """
        async with self._turn:
            extractor = await asyncio.to_thread(self._loaded)
        return await asyncio.to_thread(extractor.tokens, audio)

    def _enrol(
        self,
        audio: bytes,
        name: str,
        consent: Consent,
        transcript: str | None,
        language: str,
        clean_up: bool | None,
    ) -> Enrolment:
        extractor = self._loaded()
        if self._settings is None:
            make = self._make_settings
            self._settings = EnrolmentSettings(opinion=dnsmos()) if make is None else make()
        return enrol(
            audio,
            name=name,
            model=self._model,
            extractor=extractor,
            consent=consent,
            transcript=transcript,
            language=language,
            clean_up=clean_up,
            settings=self._settings,
        )

    def _loaded(self) -> ReferenceExtractor:
        if self._extractor is None:
            opened = self._checkpoint
            if not can_hear(opened):
                raise UnsupportedFeature(
                    f"The model {self._model} lacks {tokenizer_name(opened.generation)} or "
                    f"{SPEAKER_ENCODER}, without which it cannot hear recordings.",
                    field="model",
                )
            self._extractor = ReferenceExtractor.of(opened)
        return self._extractor
