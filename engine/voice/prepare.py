"""A recording made ready to be heard: silence off its ends, speech at a common level."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from antiphon.engine.audio_file import DecodedAudio
from antiphon.engine.voice.quality_measures import HOP_S, RATE, Analysis, Samples, analyse
from antiphon.engine.voice.resample import resample

LEVEL_DB = -23.0
"""Root mean square of speech, against full scale. What the models were trained on is near it."""
HIGHEST_PEAK = 0.8
"""Headroom for the filters behind; a very peaky recording stays under the level instead."""
LEAD_S, TAIL_S = 0.1, 0.2
"""Silence that is left at the ends: onsets and the last breath are quieter than the threshold."""


@dataclass(frozen=True, slots=True, eq=False)
class Heard:
    """A recording with its analysis at 16 kHz."""

    audio: DecodedAudio
    at_16k: Samples
    analysis: Analysis

    @classmethod
    def of(cls, audio: DecodedAudio) -> Heard:
        """Analyse a recording of at least 0.1 s."""
        at_16k = resample(audio.samples, audio.rate, RATE)
        return cls(audio, at_16k, analyse(at_16k))


def trim_silence(heard: Heard) -> DecodedAudio:
    """Cut what precedes the first and follows the last speech but for 0.1 and 0.2 s."""
    active = np.flatnonzero(heard.analysis.active)
    if len(active) == 0:
        return heard.audio
    rate = heard.audio.rate
    first = max(0, round((active[0] * HOP_S - LEAD_S) * rate))
    last = round((active[-1] * HOP_S + HOP_S + TAIL_S) * rate)
    return DecodedAudio(heard.audio.samples[first:last], rate)


def speech_samples(heard: Heard) -> Samples:
    """Return the samples at 16 kHz in which there is speech, joined."""
    frames = np.repeat(heard.analysis.active, round(HOP_S * RATE))
    length = min(len(frames), len(heard.at_16k))
    return heard.at_16k[:length][frames[:length]]


def set_level(audio: DecodedAudio, speech: Samples) -> DecodedAudio:
    """Scale a recording so that its speech has the common level, and no peak beyond 0.8."""
    power = float(np.mean(np.square(speech, dtype=np.float64))) if len(speech) else 0.0
    peak = float(np.abs(audio.samples).max(initial=0.0))
    if power == 0.0 or peak == 0.0:
        return audio
    gain = min(10 ** (LEVEL_DB / 20) / power**0.5, HIGHEST_PEAK / peak)
    return DecodedAudio(audio.samples * np.float32(gain), audio.rate)
