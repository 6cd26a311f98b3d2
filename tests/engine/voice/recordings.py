"""Clean recordings of many voices, made here, and the defects that are put into them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from antiphon.engine.audio_file import decode_audio
from antiphon.engine.voice.quality_measures import HOP_S, analyse
from antiphon.engine.voice.resample import resample
from bench.speech import Speaker, random_warp, sentences

RATE = 24_000
CLEAN = 20
Samples = NDArray[np.float32]

NANO = Path(__file__).parents[4] / "shared" / "nano"


def nano_file(name: str) -> Path:
    """Return a file of the nano checkpoint beside the checkout."""
    if not (NANO / name).is_file():
        pytest.skip("the nano checkpoint is not beside the checkout")
    return NANO / name


@cache
def clean() -> tuple[Samples, ...]:
    """Twenty recordings of about 8 s at 24 kHz in as many voices (the natural prompts first)."""
    made: list[Samples] = []
    prompts = sorted((NANO / "prompts").glob("*.wav"))
    made += [decode_audio(path).samples for path in prompts]
    speaker, random = Speaker(), np.random.default_rng(11)
    texts = sentences(2 * CLEAN, seed=11)
    for index in range(CLEAN - len(made)):
        text = f"{texts[2 * index]} {texts[2 * index + 1]}"
        made.append(speaker.speak(text, random_warp(random), seed=index)[: 8 * RATE])
    return tuple(made)


def speech_power(samples: Samples) -> float:
    """Mean square where there is speech."""
    active = analyse(resample(samples, RATE, 16_000)).active
    mask = np.repeat(active, round(HOP_S * RATE))[: len(samples)]
    return float(np.mean(np.square(samples[: len(mask)][mask], dtype=np.float64)))


def with_noise(samples: Samples, snr_db: float, seed: int, *, pink: bool = False) -> Samples:
    noise = np.random.default_rng(seed).normal(size=len(samples))
    if pink:
        spectrum = np.fft.rfft(noise)
        hertz = np.fft.rfftfreq(len(noise), 1 / RATE)
        noise = np.fft.irfft(spectrum / np.sqrt(np.maximum(hertz, 40)), len(noise))
    wanted = speech_power(samples) * 10 ** (-snr_db / 10)
    return (samples + noise * np.sqrt(wanted / np.mean(noise**2))).astype(np.float32)


def in_a_room(samples: Samples, decay_s: float, direct_db: float, seed: int) -> Samples:
    """Exponentially decaying noise behind the direct sound, which is `direct_db` above it."""
    random = np.random.default_rng(seed)
    length = int(1.2 * decay_s * RATE)
    tail = random.normal(size=length) * 10 ** (-3 * np.arange(length) / RATE / decay_s)
    tail[: RATE // 250] = 0
    tail *= 10 ** (-direct_db / 20) / np.sqrt(np.sum(tail**2))
    tail[0] = 1.0
    size = 1 << (len(samples) + length).bit_length()
    wet = np.fft.irfft(np.fft.rfft(samples, size) * np.fft.rfft(tail, size), size)
    wet = wet[: len(samples)] * (np.abs(samples).max() / np.abs(wet).max())
    return wet.astype(np.float32)


def clipped(samples: Samples, share: float) -> Samples:
    level = float(np.quantile(np.abs(samples), 1 - share))
    return np.clip(samples, -level, level)


def lowpassed(samples: Samples, hertz: float) -> Samples:
    spectrum = np.fft.rfft(samples)
    spectrum[np.fft.rfftfreq(len(samples), 1 / RATE) > hertz] = 0
    return np.fft.irfft(spectrum, len(samples)).astype(np.float32)
