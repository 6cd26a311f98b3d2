"""What a caller asked for, checked against what the engines can do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from antiphon.engine.interface import SpeechRequest
from antiphon.server.audio import AudioFormat, OpusTuning


class Split(StrEnum):
    """Where the audio of a turn is cut into numbered sentences. It never delays speech."""

    NONE = "none"
    SENTENCE = "sentence"
    CLAUSE = "clause"


@dataclass(frozen=True, slots=True)
class TurnSettings:
    """How the turns of one context are spoken."""

    model: str
    request: SpeechRequest
    format: AudioFormat
    sample_rate: int
    """Hz, of what is sent."""
    watermark: str
    """Name of the mark that the audio carries."""
    hop_tokens: int | None = None
    """Speech tokens of the first hop; None where the engine has no hops."""
    word_timestamps: bool = False
    split: Split = Split.NONE
    opus_tuning: OpusTuning | None = None
    """Opus settings that a call changes while it lasts."""
    gain_db: float = 0.0
    """Added to the level of what is sent."""
