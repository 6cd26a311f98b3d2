"""Features of reference audio equal the numbers the checkpoints were made with."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from antiphon.engine.audio_file import decode_audio
from antiphon.engine.checkpoint.config import MelConfig
from antiphon.engine.voice.features import (
    kaldi_filterbank,
    log_mel,
    slaney_filters,
    whisper_log_mel,
)
from antiphon.engine.voice.resample import resample
from tests import golden

MEL_V1 = MelConfig(1024, 80, 22050, 256, 1024, 0.0, 8000.0, False)
MEL_V2 = MelConfig(1920, 80, 24000, 480, 1920, 0.0, 8000.0, False)
MEL_V3 = MelConfig(1920, 80, 24000, 480, 1920, 0.0, None, False)


def prompt() -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return decode_audio(golden.golden_path("audio/prompt_24k.wav")).samples


def test_resampler_is_the_reference_one() -> None:
    heard = resample(prompt(), 24000, 16000)
    golden.assert_close(torch.from_numpy(heard[None, :16000]), 2, "frontend", "wav_16k_head")


@pytest.mark.parametrize(
    ("version", "config", "name", "rate"),
    [
        (1, MEL_V1, "mel_at_22050", 22050),
        (1, MEL_V1, "mel", 24000),
        (2, MEL_V2, "mel", 24000),
        (3, MEL_V3, "mel", 24000),
    ],
)
def test_log_mel_is_the_reference_one(
    version: int, config: MelConfig, name: str, rate: int
) -> None:
    mel = log_mel(resample(prompt(), 24000, rate), config)
    golden.assert_close(mel[None], version, "frontend", name)


def test_network_inputs_are_the_reference_ones() -> None:
    heard = resample(prompt(), 24000, 16000)
    golden.assert_close(whisper_log_mel(heard)[None], 2, "frontend", "whisper_logmel")
    bank = kaldi_filterbank(heard)
    golden.assert_close(bank - bank.mean(dim=0), 2, "frontend", "fbank_cmn")


def test_filters_of_two_versions_do_not_share_a_cache_entry() -> None:
    # Upstream caches them by fmax alone: the second model in a process got the first one's table.
    first = slaney_filters(22050, 1024, 80, 0.0, 8000.0)
    second = slaney_filters(24000, 1920, 80, 0.0, 8000.0)
    assert first.shape == (80, 513)
    assert second.shape == (80, 961)
    golden.assert_close(log_mel(prompt(), MEL_V2)[None], 2, "frontend", "mel")


@pytest.mark.parametrize(("source", "target"), [(48000, 16000), (44100, 24000), (22050, 16000)])
def test_resampling_keeps_a_tone_and_removes_what_cannot_be_held(source: int, target: int) -> None:
    time_s = np.arange(source) / source
    kept = np.sin(2 * np.pi * 1000 * time_s).astype(np.float32)
    result = resample(kept, source, target)
    assert len(result) == target
    expected = np.sin(2 * np.pi * 1000 * np.arange(target) / target)
    assert np.abs(result - expected)[200:-200].max() < 5e-3
    removed = np.sin(2 * np.pi * (target / 2 * 1.3) * time_s).astype(np.float32)
    if target / 2 * 1.3 < source / 2:
        assert np.abs(resample(removed, source, target)[200:-200]).max() < 0.05
    assert resample(kept, source, source) is kept
