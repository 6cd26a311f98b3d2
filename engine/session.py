"""One turn of speech on a CosyVoice checkpoint, strung together from its stages.

    text pieces ─► text front end ─► speech LM ─► hops ─► flow and vocoder ─► watermark ─► events

Each stage is an async iterator over the one before it. Pulling the last one is what makes speech
happen; closing it frees the LM request, the acoustic state and the buffers.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from antiphon.engine.acoustic.interface import AcousticEngine, AcousticSettings
from antiphon.engine.clock import TurnClock
from antiphon.engine.errors import SynthesisFailed
from antiphon.engine.hops import SECONDS_A_TOKEN, SMALLEST_HOP, HopPlan, HopSettings
from antiphon.engine.interface import FinishReason, SpeechAudio, SpeechEvent, SpeechFinished
from antiphon.engine.progress import ProgressTracker
from antiphon.engine.segments import Segment, SegmentLimits, segments
from antiphon.engine.silence import SilenceGuard
from antiphon.engine.speech_lm.request import Sampling, SpeechLM, SpeechLMRequest
from antiphon.engine.text.text_stream import TextPiece, TextStream
from antiphon.engine.text.validate import validate_text
from antiphon.engine.tokens import Border, SegmentMark, TokenBuffer
from antiphon.engine.turn import Flush, TextQueue, Turn
from antiphon.engine.voice.voice import AcousticPrompt, LMPrompt
from antiphon.engine.watermark.interface import Watermark

WHOLE_TEXT_PIECES = SegmentLimits(1, 1, 1)
"""Whole texts come in pieces that are segments already."""
PAUSE_S = 0.3
"""Text that stops for so long before the first hop is full has paused: what there is is spoken."""


@dataclass(frozen=True, slots=True)
class SessionVoice:
    """A voice, trimmed for the two stages that hear it."""

    lm: LMPrompt
    acoustic: AcousticPrompt
    require_allowed: Callable[[], None] | None = None
    """Raises `ConsentRequired` once the voice may no longer be used; asked before each stretch
    of speech and before any audio leaves. None: always allowed."""
    name: str | None = None
    """Set where the voice can be withdrawn: what is cached of it is then its own."""

    def check(self) -> None:
        """Return if the voice may be used now.

        Raises:
            ConsentRequired: naming what forbids it.
        """
        if self.require_allowed is not None:
            self.require_allowed()


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What a deployment decides about every session of a model."""

    hops: HopSettings = field(default_factory=HopSettings)
    acoustic: AcousticSettings = field(default_factory=AcousticSettings)
    segments: SegmentLimits = field(default_factory=SegmentLimits)
    text_queue_characters: int = 4000
    """Text that may wait to be spoken; `push_text` waits beyond it."""


@dataclass(frozen=True, slots=True)
class Stages:
    """What the sessions of one model share, and what its checkpoint says about them."""

    text: Callable[[], TextStream]
    lm: SpeechLM
    acoustic: AcousticEngine
    watermark: Watermark
    sampling: Sampling
    mix_ratio: tuple[int, int]
    """Text ids and speech tokens of one block of the bi-stream layout."""
    length_ratios: tuple[float, float]
    """Fewest and most speech tokens for each text id; the second ends a runaway."""
    progress: Callable[[float], ProgressTracker]
    """Makes what places a turn's words in time, from the seconds that a speech token takes."""
    seconds_a_token: float = SECONDS_A_TOKEN


class CosyVoiceSession(Turn):
    """One turn. See `SpeechSession` for its contract."""

    def __init__(
        self,
        stages: Stages,
        voice: SessionVoice,
        settings: SessionSettings,
        seed: int,
        tenant: str | None = None,
        *,
        whole_text: bool = False,
    ) -> None:
        super().__init__()
        self._stages = stages
        self._voice = voice
        self._settings = settings
        self._seed = seed
        self._tenant = tenant
        self._whole_text = whole_text
        self._cached: list[int] = []
        self._text = TextQueue(settings.text_queue_characters)
        self._clock = TurnClock(stages.mix_ratio)
        self._progress = stages.progress(stages.seconds_a_token / settings.acoustic.speed)
        self._reason = FinishReason.EMPTY
        self._border = Border.NONE
        self._speech_tokens = 0

    async def push_text(self, text: str) -> None:
        """Add text; waits while the queue is full.

        Raises:
            InvalidRequest: control characters or lone surrogates.
        """
        validate_text(text)
        self._clock.text_came()
        await self._text.put(text)

    async def flush(self) -> None:
        """Speak what is buffered without waiting for the text that could change it."""
        self._text.flush()

    async def end_text(self) -> None:
        """No more text will come."""
        self._text.end()

    async def cancel(self) -> None:
        """See `SpeechSession`. A writer is let go of even if nobody has read the events yet."""
        await super().cancel()
        self._text.close()

    async def _events(self) -> AsyncGenerator[SpeechEvent, None]:
        try:
            pieces = self._pieces()
            async with (
                aclosing(pieces),
                TokenBuffer(self._tokens(pieces)) as tokens,
                aclosing(self._audio(tokens)) as audio,
            ):
                async for event in audio:
                    yield event
            # Where tokens are no whole number of frames, the last word ends beyond the last sample.
            for event in self._progress.until(math.inf):
                yield event
            yield SpeechFinished(self._reason, self._clock.samples, self._speech_tokens)
        finally:
            self._text.close()

    async def _pieces(self) -> AsyncGenerator[TextPiece | Flush, None]:
        """Text front end: words as token ids, as soon as no later text can change them."""
        front_end = self._stages.text()
        async for item in self._text:
            if isinstance(item, Flush):
                for piece in await self._read(front_end.flush):
                    yield piece
                yield item
            else:
                for piece in front_end.push(item):
                    yield piece
        for piece in await self._read(front_end.end):
            yield piece

    async def _read(self, read: Callable[[], list[TextPiece]]) -> list[TextPiece]:
        """A whole text is read at its end, a second of work where it is long."""
        return await asyncio.to_thread(read) if self._whole_text else read()

    async def _tokens(
        self, pieces: AsyncGenerator[TextPiece | Flush, None]
    ) -> AsyncGenerator[int | SegmentMark, None]:
        """Speech LM: one request for each segment."""
        number = 0
        limits = WHOLE_TEXT_PIECES if self._whole_text else self._settings.segments
        async for segment in segments(pieces, limits):
            if segment.empty:
                yield SegmentMark.FLUSH
                continue
            yield SegmentMark.BEGIN
            async with aclosing(self._segment_tokens(segment, number)) as tokens:
                async for token in tokens:
                    yield token
            yield SegmentMark.FLUSH if segment.flush else SegmentMark.END
            number += 1

    async def _segment_tokens(self, segment: Segment, number: int) -> AsyncGenerator[int, None]:
        least, most = self._stages.length_ratios
        self._progress.begin_segment()
        generation = self._stages.lm.generate(
            SpeechLMRequest(
                prompt=self._voice.lm,
                text=await self._all_ids(segment) if self._whole_text else self._ids(segment),
                sampling=replace(self._stages.sampling, seed=self._seed + number),
                min_ratio=least,
                max_ratio=most,
                tenant=self._tenant,
                voice=self._voice.name,
            )
        )
        begun = False
        async with aclosing(generation):
            async for token in generation:
                if not begun and generation.cached_ids is not None:
                    self._cached.append(generation.cached_ids)
                begun = True
                self._progress.token(token)
                yield token
        self._progress.end_segment()
        if self._reason in (FinishReason.EMPTY, FinishReason.STOP):
            self._reason = generation.finish_reason or FinishReason.STOP

    async def _all_ids(self, segment: Segment) -> list[int]:
        """A text that is there is given in the plain layout, as the models were trained with."""
        return [one async for ids in self._ids(segment) for one in ids]

    async def _ids(self, segment: Segment) -> AsyncGenerator[Sequence[int], None]:
        async for piece in segment:
            self._progress.piece(piece)
            self._clock.ids_came(len(piece.ids))
            yield piece.ids

    async def _audio(self, tokens: TokenBuffer) -> AsyncGenerator[SpeechEvent, None]:
        """Flow, vocoder and watermark: one stretch of speech after the other."""
        guard = SilenceGuard(self._stages.acoustic.sample_rate)
        while self._border is not Border.TURN:
            async with aclosing(self._stretch(tokens, guard)) as stretch:
                async for event in stretch:
                    yield event
        if self._reason is not FinishReason.EMPTY and not self._speech_tokens:
            raise SynthesisFailed("the speech LM ended without saying anything")
        guard.finish()

    async def _stretch(
        self, tokens: TokenBuffer, guard: SilenceGuard
    ) -> AsyncGenerator[SpeechEvent, None]:
        """Speak hops until the voice rests: at a flush, a pause of the text, or its end."""
        await tokens.wait_for(1)
        if not len(tokens):
            # A flush or the end, with nothing before it.
            self._border = tokens.take(0).border
            return
        self._voice.check()
        # Opened, and an unknown voice's prompt solved, while the LM makes the rest of the hop.
        acoustic = await self._stages.acoustic.open(self._voice.acoustic, self._settings.acoustic)
        mark = self._stages.watermark.stream(self._stages.acoustic.sample_rate)
        plan = HopPlan(self._settings.hops)
        try:
            while True:
                hop, rests = await self._next_hop(tokens, plan)
                timings = self._clock.first_hop_ready(len(hop))
                spoken = await acoustic.speak(hop, final=rests, deadline=self._clock.runs_dry_at)
                guard.check(spoken.samples)
                started = time.monotonic()
                marked = [await asyncio.to_thread(mark.push, spoken.samples)]
                if rests:
                    marked.append(await asyncio.to_thread(mark.finish))
                timings |= spoken.timings | {"watermark": time.monotonic() - started}
                self._voice.check()
                for audio in marked:
                    cached, self._cached = tuple(self._cached), []
                    for event in self._handed_out(SpeechAudio(audio, timings, cached)):
                        yield event
                if rests:
                    return
        finally:
            acoustic.close()

    async def _next_hop(self, tokens: TokenBuffer, plan: HopPlan) -> tuple[list[int], bool]:
        """Return the next tokens to speak, and whether the voice rests behind them."""
        wanted = plan.wanted()
        patience_s = plan.patience_s(self._clock.runs_dry_at, time.monotonic())
        await tokens.wait_for(wanted, patience_s, or_rest=plan.first)
        if plan.first:
            await tokens.wait_for(wanted, PAUSE_S)
        # Fewer only where the listener runs dry: then the least that is worth a hop, or all there
        # is while the text pauses.
        await tokens.wait_for(min(wanted, SMALLEST_HOP), or_rest=True)
        hop, border = tokens.take(wanted)
        plan.took(len(hop))
        self._speech_tokens += len(hop)
        self._border = border
        rests = border in (Border.FLUSH, Border.TURN)
        return hop, rests or (border is Border.SEGMENT and len(hop) < wanted)

    def _handed_out(self, event: SpeechAudio) -> list[SpeechEvent]:
        if not len(event.audio):
            return []
        rate = self._stages.acoustic.sample_rate
        self._clock.audio_left(len(event.audio), rate)
        return [*self._progress.until(self._clock.samples / rate), event]
