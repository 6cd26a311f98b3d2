"""`PresetEngine`: voices that speak on any CPU, far faster than real time."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence

from antiphon.engine.errors import InvalidRequest, UnknownVoice, UnsupportedFeature
from antiphon.engine.interface import (
    Capabilities,
    Mode,
    SpeechFinished,
    SpeechRequest,
    VoiceInfo,
)
from antiphon.engine.preset.model import SAMPLE_RATE_HZ, PresetModel
from antiphon.engine.preset.session import PresetSession, PresetStages
from antiphon.engine.preset.workers import Workers
from antiphon.engine.text.lexicon import load_dictionary
from antiphon.engine.watermark.interface import Watermark

VOICE = "heart"
SPEEDS = (0.5, 2.0)
"""What the voice was trained for."""
WARM_UP_TEXT = "Hello there, this is a test."
SEEDS = 2**31


class PresetEngine:
    """See `Engine` for its contract. Its voice comes in the wheel of `hibari-tts`."""

    def __init__(
        self,
        watermark: Watermark,
        *,
        name: str = "preset",
        text_queue_characters: int = 2000,
        workers: int = 2,
    ) -> None:
        """Load the voice.

        Args:
            watermark: the stage every sample goes through.
            name: how requests name the model.
            text_queue_characters: text that may wait in a session; `push_text` waits beyond it.
            workers: threads that speak; a clause occupies one for some 10 ms a second of speech.

        Raises:
            CheckpointError: the voice's model cannot be read.
        """
        self._workers = Workers(workers)
        self._stages = PresetStages(PresetModel(VOICE), watermark, self._workers)
        self._text_queue_characters = text_queue_characters
        self._capabilities = Capabilities(
            model=name,
            sample_rate=SAMPLE_RATE_HZ,
            modes=frozenset({Mode.PRESET}),
            languages=frozenset({"en"}),
            speaks_before_clause_end=False,
            speed=SPEEDS,
            pronunciation=True,
        )

    @property
    def capabilities(self) -> Capabilities:
        """See `Engine`."""
        return self._capabilities

    @property
    def ready(self) -> bool:
        """See `Engine`: nothing of it restarts."""
        return True

    def voices(self) -> Sequence[VoiceInfo]:
        """See `Engine`."""
        return [VoiceInfo(VOICE, "en", "American English, female", Mode.PRESET)]

    def check_voice(self, name: str) -> None:
        """See `Engine`."""
        if name != VOICE:
            raise UnknownVoice(
                f"The model {self._capabilities.model} has no voice {name[:64]!r}; it has {VOICE}.",
                field="voice",
                limit=VOICE,
            )

    async def warm_up(self) -> None:
        """Read the dictionary and speak a short text."""
        load_dictionary()
        session = await self.open_session(SpeechRequest(voice=VOICE, seed=0))
        await session.push_text(WARM_UP_TEXT)
        await session.end_text()
        async for event in session.events():
            if isinstance(event, SpeechFinished):
                return

    async def open_session(self, request: SpeechRequest) -> PresetSession:
        """See `Engine`."""
        self.check_voice(request.voice)
        self._refuse_unsupported(request)
        return PresetSession(
            self._stages,
            speed=request.speed,
            seed=secrets.randbelow(SEEDS) if request.seed is None else request.seed,
            text_queue_characters=self._text_queue_characters,
        )

    def _refuse_unsupported(self, request: SpeechRequest) -> None:
        able = self._capabilities
        slowest, fastest = able.speed
        # Written so that NaN is refused too.
        if not (math.isfinite(request.speed) and slowest <= request.speed <= fastest):
            raise InvalidRequest(
                f"The model {able.model} speaks at speeds from {slowest:g} to {fastest:g}.",
                field="speed",
                limit=fastest if request.speed > fastest else slowest,
            )
        if request.seed is not None and request.seed < 0:
            raise InvalidRequest("A seed is not negative.", field="seed", limit=0)
        if request.language is not None and request.language.split("-")[0] not in able.languages:
            raise UnsupportedFeature(
                f"The model {able.model} speaks {', '.join(sorted(able.languages))}.",
                field="language",
            )
        for field in ("instruct", "first_hop", "max_hop"):
            if getattr(request, field) is not None:
                raise UnsupportedFeature(
                    f"The model {able.model} does not support {field}.", field=field
                )

    async def close(self) -> None:
        """Free the worker threads once the clauses in them are spoken."""
        self._workers.close()
