"""`PresetEngine`: preset voices behind the engine interface."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from antiphon.engine.errors import UnknownVoice, UnsupportedFeature
from antiphon.engine.interface import (
    Capabilities,
    Mode,
    SpeechFinished,
    SpeechRequest,
    VoiceInfo,
)
from antiphon.engine.preset.session import PresetSession
from antiphon.engine.preset.voice import FASTEST, SAMPLE_RATE, SLOWEST, HibariVoice
from antiphon.engine.watermark.interface import Watermark

HEART = VoiceInfo(
    name="heart",
    language="en",
    description="American woman; hibari-tts, a preset voice that cannot be cloned or instructed",
    mode=Mode.PRESET,
)
WARM_UP_TEXT = "Hello there, this is a test."
SEEDS = 2**31


class PresetEngine:
    """See `Engine` for its contract. A clause must be complete before it is spoken."""

    def __init__(
        self, watermark: Watermark, *, name: str = "preset", text_queue_characters: int = 2000
    ) -> None:
        self._voice = HibariVoice()
        self._watermark = watermark
        self._text_queue_characters = text_queue_characters
        # One thread: clauses are short, and callers are served in the order they ask.
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="preset-voice")
        self._capabilities = Capabilities(
            model=name,
            sample_rate=SAMPLE_RATE,
            modes=frozenset({Mode.PRESET}),
            languages=frozenset({"en"}),
            speaks_before_clause_end=False,
            speed=(SLOWEST, FASTEST),
            pronunciation=True,
        )

    @property
    def capabilities(self) -> Capabilities:
        """See `Engine`."""
        return self._capabilities

    def voices(self) -> Sequence[VoiceInfo]:
        """See `Engine`."""
        return [HEART]

    async def warm_up(self) -> None:
        """Speak a short text."""
        session = await self.open_session(SpeechRequest(voice=HEART.name, seed=0))
        await session.push_text(WARM_UP_TEXT)
        await session.end_text()
        async for event in session.events():
            if isinstance(event, SpeechFinished):
                return

    async def open_session(self, request: SpeechRequest) -> PresetSession:
        """See `Engine`."""
        self._refuse_unsupported(request)
        return PresetSession(
            self._voice,
            self._worker,
            self._watermark.stream(SAMPLE_RATE),
            speed=request.speed,
            seed=secrets.randbelow(SEEDS) if request.seed is None else request.seed,
            text_queue_characters=self._text_queue_characters,
        )

    def _refuse_unsupported(self, request: SpeechRequest) -> None:
        model = self._capabilities.model
        if request.voice != HEART.name:
            raise UnknownVoice(
                f"The model {model} has no voice {request.voice!r}; it has {HEART.name}.",
                field="voice",
                limit=HEART.name,
            )
        if not SLOWEST <= request.speed <= FASTEST:
            raise UnsupportedFeature(
                f"The model {model} speaks at speeds from {SLOWEST:g} to {FASTEST:g}.",
                field="speed",
                limit=f"{SLOWEST:g}..{FASTEST:g}",
            )
        if request.language is not None and request.language.split("-")[0].lower() != "en":
            raise UnsupportedFeature(f"The model {model} speaks en.", field="language", limit="en")
        for field in ("instruct", "first_hop", "max_hop"):
            if getattr(request, field) is not None:
                raise UnsupportedFeature(f"The model {model} has no {field}.", field=field)

    async def close(self) -> None:
        """See `Engine`."""
        await asyncio.to_thread(self._worker.shutdown, cancel_futures=True)
