"""Voice conversion: a recording said again in another voice.

    recording ─► speech tokenizer ─► hops ─► flow and vocoder ─► watermark ─► events

The speech tokens of the recording stand where the speech LM's would; everything behind them is the
same as for text, so that words and timing stay and the voice is another.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from antiphon.engine.audio_file import DecodedAudio
from antiphon.engine.errors import InvalidRequest
from antiphon.engine.interface import MAX_SOURCE_S, FinishReason
from antiphon.engine.session import CosyVoiceSession, SessionSettings, SessionVoice, Stages
from antiphon.engine.text.text_stream import TextPiece
from antiphon.engine.tokens import SegmentMark
from antiphon.engine.turn import Flush
from antiphon.engine.voice.reference import MAX_REFERENCE_S, check_recording

CUT_S = (22.0, 28.0)
"""Where longer recordings are cut for the tokenizer, which hears 30 s at most: at the quietest
moment between these."""
GRID_S = 0.04
"""Cuts fall on whole speech tokens of every generation."""

Listen = Callable[[DecodedAudio], Awaitable[NDArray[np.int64]]]
"""Speech tokens of a recording of at most 30 s."""


def check_source(source: DecodedAudio) -> None:
    """Return if a recording can be converted.

    Raises:
        InvalidRequest: too long, too short, or below 16 kHz; `field` is `audio`.
    """
    check_recording(source, MAX_SOURCE_S)


def windows(source: DecodedAudio) -> Iterator[DecodedAudio]:
    """Cut a recording into parts that the tokenizer hears whole; joined they are the recording."""
    samples, rate = source.samples, source.rate
    while len(samples) > MAX_REFERENCE_S * rate:
        cut = _quietest(samples, rate)
        yield DecodedAudio(samples[:cut], rate)
        samples = samples[cut:]
    yield DecodedAudio(samples, rate)


def _quietest(samples: NDArray[np.float32], rate: int) -> int:
    """The grid position with the least energy around it, in samples."""
    grid = round(GRID_S * rate)
    first, last = (round(seconds / GRID_S) for seconds in CUT_S)
    frames = samples[(first - 1) * grid : (last + 1) * grid].reshape(-1, grid)
    energy = np.square(frames, dtype=np.float64).sum(axis=1)
    return grid * (first + int((energy[:-1] + energy[1:]).argmin()))


class ConversionSession(CosyVoiceSession):
    """One recording in another voice. See `SpeechSession`; it takes no text."""

    def __init__(
        self,
        stages: Stages,
        voice: SessionVoice,
        settings: SessionSettings,
        source: DecodedAudio,
        listen: Listen,
    ) -> None:
        """Convert `source`; `listen` makes its speech tokens, part by part."""
        super().__init__(stages, voice, settings, seed=0)
        self._source = source
        self._listen = listen

    async def push_text(self, text: str) -> None:
        """Refuse it.

        Raises:
            InvalidRequest: what is said is in the recording.
        """
        raise InvalidRequest("A conversion takes no text.", field="text")

    async def _tokens(
        self, pieces: AsyncGenerator[TextPiece | Flush, None]
    ) -> AsyncGenerator[int | SegmentMark, None]:
        """Speech tokenizer, in the place of front end and speech LM."""
        await pieces.aclose()
        yield SegmentMark.BEGIN
        for window in windows(self._source):
            for token in (await self._listen(window)).tolist():
                self._reason = FinishReason.STOP
                yield token
        yield SegmentMark.END
