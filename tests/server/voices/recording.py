"""A server whose engine learns voices, and a recording to learn from."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from antiphon.engine.checkpoint import open_checkpoint
from antiphon.engine.cosyvoice import CosyVoiceEngine
from antiphon.engine.generations import load_stages
from antiphon.engine.preset.engine import PresetEngine
from antiphon.engine.voice.enrol import EnrolmentSettings
from antiphon.engine.voice.folder import VoiceFolder
from antiphon.engine.voice.quality import Bounds, QualityThresholds
from antiphon.engine.voice.store import VoiceStore
from antiphon.engine.watermark.none import NoWatermark
from antiphon.server.engines import EngineSet
from antiphon.server.run import running
from bench.speech import Speaker, random_warp
from tests import golden
from tests.engine.test_audio_file import encode
from tests.server.harness import Running, tone_config

TRANSCRIPT = "The ship sails over the quiet sea, and the people on the shore wave for a long time."
ANYONE = EnrolmentSettings(
    QualityThresholds(
        # The tiny encoder has random weights: its similarities say nothing about people.
        speaker_similarity=Bounds(warn=-1.0, refuse=None, higher_is_better=True)
    )
)


@cache
def recording() -> bytes:
    """A WAV file of clean speech."""
    samples = Speaker().speak(TRANSCRIPT, random_warp(np.random.default_rng(3)), seed=1)
    return encode(samples, "wav", "pcm_s16le", 24_000, "mono")


def tiny(version: int, folder: VoiceFolder | None = None) -> CosyVoiceEngine:
    opened = open_checkpoint(golden.speaking_model_dir(version))
    stages = load_stages(opened, NoWatermark(), max_sessions=2)
    # Random weights never say that the text is spoken: the greatest length ends every segment.
    stages = replace(stages, length_ratios=(2.0, 3.0))
    return CosyVoiceEngine(
        opened, stages, name=f"tiny{version}", voices=folder, enrolment=lambda: ANYONE
    )


@asynccontextmanager
async def learning(
    directory: Path,
    *,
    versions: tuple[int, ...] = (3,),
    overrides: Mapping[str, Any] | None = None,
) -> AsyncIterator[Running]:
    """Tiny checkpoints beside the preset voice, with a folder of voices."""
    mark = NoWatermark()
    folder = VoiceFolder(VoiceStore(directory))
    cloning = {f"tiny{version}": tiny(version, folder) for version in versions}
    engines = EngineSet(
        {"preset": PresetEngine(mark), **cloning},
        model="preset",
        voice="heart",
        watermark=mark,
        folder=folder,
    )
    async with running(tone_config(overrides), engines) as server:
        yield Running(server.url, server.house, cloning, server.calls, server.audiosocket_port)
