"""`CosyVoiceEngine`: a checkpoint of any generation and its voices, behind the engine interface."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np

from antiphon.engine.acoustic.settings import SPEEDS, EngineSettings
from antiphon.engine.checkpoint import Checkpoint, open_checkpoint
from antiphon.engine.checkpoint.voices import acoustic_prompt
from antiphon.engine.conversion import ConversionSession
from antiphon.engine.engine_voices import EngineVoices, RequireAllowed
from antiphon.engine.errors import InvalidRequest
from antiphon.engine.generations import (
    choose_device,
    fitted_settings,
    front_end,
    is_phone_coded,
    load_stages,
    traits,
    whole_front_end,
)
from antiphon.engine.hops import LARGEST_HOP, SMALLEST_HOP
from antiphon.engine.interface import (
    Capabilities,
    SpeechFinished,
    SpeechRequest,
    VoiceInfo,
)
from antiphon.engine.prompts import PromptMaker, PromptVoice
from antiphon.engine.refusals import refuse_unsupported
from antiphon.engine.session import CosyVoiceSession, SessionSettings, SessionVoice, Stages
from antiphon.engine.speech_lm.request import WarmPrompt
from antiphon.engine.speech_lm.settings import LMSettings
from antiphon.engine.text.grammar import Grammar
from antiphon.engine.voice.consent import Consent
from antiphon.engine.voice.enrol import Enrolment, EnrolmentSettings
from antiphon.engine.voice.enroller import Enroller
from antiphon.engine.voice.folder import VoiceFolder
from antiphon.engine.voice.reference import EMBEDDING_SIZE, checkpoint_fingerprint
from antiphon.engine.voice.voice import LMPrompt
from antiphon.engine.watermark.interface import Watermark

WARM_UP_TEXT = "Hello there, this is a test."
SEEDS = 2**31
MOST_WARM_VOICES = 32
"""Voices whose prompts are solved at start; those beyond are at their first use."""


class CosyVoiceEngine:
    """See `Engine` for its contract."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        stages: Stages,
        *,
        name: str | None = None,
        settings: SessionSettings | None = None,
        voices: VoiceFolder | None = None,
        enrolment: Callable[[], EnrolmentSettings] | None = None,
        grammar: Grammar | None = None,
    ) -> None:
        """Serve loaded stages; see `load`."""
        self._checkpoint = checkpoint
        self._grammar = grammar
        self._stages = stages
        self._settings = fitted_settings(checkpoint, settings or SessionSettings())
        self._prompts = PromptMaker(checkpoint)
        able = traits(checkpoint)
        self._capabilities = Capabilities(
            model=name or checkpoint.name,
            sample_rate=stages.acoustic.sample_rate,
            modes=able.modes,
            languages=able.languages,
            speaks_before_clause_end=able.while_writing,
            speed=SPEEDS,
            pronunciation=able.pronunciation,
            hop_tokens=(SMALLEST_HOP, LARGEST_HOP) if able.has_hops else None,
        )
        self._enroller = Enroller(checkpoint, self._capabilities.model, enrolment)
        self._voices = EngineVoices(
            self._capabilities.model,
            self._prompts,
            map(self._prompts.stored, checkpoint.voices.values()),
            folder=voices,
            fingerprint=None if voices is None else checkpoint_fingerprint(checkpoint),
            forget=stages.acoustic.forget_voice,
            revoke=stages.lm.revoke,
        )

    @classmethod
    def load(
        cls,
        directory: Path,
        watermark: Watermark,
        *,
        name: str | None = None,
        settings: SessionSettings | None = None,
        max_sessions: int = 8,
        device: str = "cpu",
        voices: VoiceFolder | None = None,
        top_p: float | None = None,
        lm: LMSettings | None = None,
        acoustic: EngineSettings | None = None,
        enrolment: Callable[[], EnrolmentSettings] | None = None,
        grammar: Callable[[], Grammar | None] | None = None,
    ) -> Self:
        """Load a model directory of any generation.

        Args:
            directory: as published, or the nano checkpoint.
            watermark: the stage every sample goes through.
            name: how requests name the model; the directory's name by default.
            settings: hops, solver and limits of its sessions.
            max_sessions: turns that the speech LM decodes together; as many again may wait.
            device: `cpu`, `cuda`, or `auto` for CUDA where it is there.
            voices: the deployment's voices; those that were made for this model are its own too.
            top_p: share of probability that the speech LM draws from, instead of the checkpoint's.
            lm: backend of the speech LM and its memory.
            acoustic: memory, precision and place of flow and vocoder.
            enrolment: makes what new voices are made by, when the first one is.
            grammar: loads what writes out whole texts in Chinese and Japanese; called only for
                checkpoints that read such texts. None: their numbers stay digits.

        Raises:
            CheckpointError: files that are missing or do not fit.
            InvalidConfiguration: a device or a backend that is not there.
        """
        checkpoint = open_checkpoint(directory)
        # Before the weights, which take longer.
        loaded = grammar() if grammar is not None and not is_phone_coded(checkpoint) else None
        stages = load_stages(
            checkpoint,
            watermark,
            max_sessions=max_sessions,
            device=choose_device(device),
            lm=lm,
            acoustic=acoustic,
        )
        if top_p is not None:
            stages = replace(stages, sampling=replace(stages.sampling, top_p=top_p))
        return cls(
            checkpoint,
            stages,
            name=name,
            settings=settings,
            voices=voices,
            enrolment=enrolment,
            grammar=loaded,
        )

    @property
    def capabilities(self) -> Capabilities:
        """See `Engine`."""
        return self._capabilities

    @property
    def ready(self) -> bool:
        """See `Engine`."""
        return self._stages.lm.ready and self._stages.acoustic.ready

    def voices(self) -> Sequence[VoiceInfo]:
        """See `Engine`."""
        return self._voices.infos()

    def check_voice(self, name: str) -> None:
        """See `Engine`."""
        self._voices.check(name)

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
        """See `EnrollingEngine`."""
        made = await self._enroller.enrol(
            audio,
            name=name,
            consent=consent,
            transcript=transcript,
            language=language,
            clean_up=clean_up,
        )
        self._voices.check_new(made.voice)
        return made

    @property
    def busy(self) -> int:
        """Model requests that run or wait."""
        return self._stages.lm.load_now + self._stages.acoustic.open_streams

    async def warm_up(self) -> None:
        """Speak a short text in the checkpoint's first voice, or in none where it has none.

        The other voices' prompts are solved too, so that their first callers do not wait for it.
        """
        await self._stages.lm.start(self._warm_prompts)
        voice = self._voices.first() or _nobody(self._checkpoint.mel_config.num_mels)
        session = self._session(SpeechRequest(voice.name, seed=0), voice)
        await session.push_text(WARM_UP_TEXT)
        await session.end_text()
        async for event in session.events():
            if isinstance(event, SpeechFinished):
                break
        for known, _ in self._usable_voices():
            await self._stages.acoustic.warm_voice(known.acoustic, self._settings.acoustic)

    def _usable_voices(self) -> Iterator[tuple[PromptVoice, RequireAllowed | None]]:
        """Yield the voices to keep warm; one that may not be used now stays cold."""
        for info in self._voices.infos()[:MOST_WARM_VOICES]:
            with suppress(InvalidRequest):
                yield self._voices.get(info.name)

    def _warm_prompts(self) -> Iterator[WarmPrompt]:
        """Yield the voices' prompts as they are now: some may have changed since the start."""
        for known, require_allowed in self._usable_voices():
            yield WarmPrompt(self._prompts.fit(known).prompt, _own_name(known, require_allowed))

    async def open_session(self, request: SpeechRequest) -> CosyVoiceSession:
        """See `Engine`."""
        voice, require_allowed = self._voices.get(request.voice)
        refuse_unsupported(request, self._capabilities)
        if request.source is not None:
            return ConversionSession(
                self._stages,
                SessionVoice(LMPrompt(), voice.acoustic, require_allowed),
                self._for(request),
                request.source,
                self._enroller.speech_tokens,
            )
        return self._session(request, voice, require_allowed)

    def _session(
        self,
        request: SpeechRequest,
        voice: PromptVoice,
        require_allowed: RequireAllowed | None = None,
    ) -> CosyVoiceSession:
        language = request.language or voice.language or None
        whole = None
        if request.whole_text:
            whole = whole_front_end(self._checkpoint, language, self._grammar)
        fitted = self._prompts.fit(voice, request.language, request.instruct)
        return CosyVoiceSession(
            replace(self._stages, text=whole or front_end(self._checkpoint, language)),
            SessionVoice(
                fitted.prompt,
                voice.acoustic,
                require_allowed,
                _own_name(voice, require_allowed),
            ),
            self._for(request),
            secrets.randbelow(SEEDS) if request.seed is None else request.seed,
            request.tenant,
            whole_text=whole is not None,
        )

    def _for(self, request: SpeechRequest) -> SessionSettings:
        """Return the deployment's settings with the request's speed and hops.

        Raises:
            InvalidRequest: see `HopSettings.asked`.
        """
        acoustic = replace(self._settings.acoustic, speed=request.speed)
        if request.lead_s is not None:
            acoustic = replace(acoustic, lead_s=request.lead_s)
        hops = self._settings.hops
        if self._capabilities.hop_tokens is not None:
            hops = hops.asked(request.first_hop, request.max_hop, request.hop_growth)
        return replace(self._settings, acoustic=acoustic, hops=hops)

    async def close(self) -> None:
        """See `Engine`."""
        await self._stages.lm.close()
        await self._stages.acoustic.close()


def _own_name(voice: PromptVoice, require_allowed: RequireAllowed | None) -> str | None:
    """Name under which a voice's prefix is cached; voices of the checkpoint are nobody's."""
    return None if require_allowed is None else voice.name


def _nobody(mel_bins: int) -> PromptVoice:
    """A voice that is only good for warming up: no prompt and any speaker."""
    acoustic = acoustic_prompt(
        np.zeros(0, np.int64),
        np.zeros((0, mel_bins), np.float32),
        np.ones(EMBEDDING_SIZE, np.float32),
    )
    return PromptVoice("", "", LMPrompt(speaker=tuple(acoustic.embedding.tolist())), acoustic)
