"""A streamed text ends as it would have ended whole: no seam, no noise in its last 40 ms."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from antiphon.engine.acoustic.engine import DecoderEngine
from antiphon.engine.acoustic.interface import AcousticSettings
from antiphon.engine.acoustic.loader import load_acoustic_engine
from antiphon.engine.acoustic.settings import EngineSettings
from antiphon.engine.checkpoint import open_checkpoint
from antiphon.engine.checkpoint.voices import acoustic_prompt
from antiphon.engine.voice.voice import AcousticPrompt
from tests import golden
from tests.engine.acoustic import models

LAST = 24_000 * 40 // 1000


def prompt(version: int) -> AcousticPrompt:
    tokens = golden.array(version, "frontend", "zero_shot.speech_token")[0].long().numpy()
    mel = golden.array(version, "frontend", "zero_shot.prompt_speech_feat")[0].numpy()
    return acoustic_prompt(tokens, mel, golden.array(version, "frontend", "embedding")[0].numpy())


async def spoken(engine: DecoderEngine, version: int, cuts: list[int]) -> list[np.ndarray]:
    tokens = golden.array(version, "flow", "tokens")[0].tolist()
    stream = await engine.open(prompt(version), AcousticSettings(steps=4))
    edges = [0, *cuts, len(tokens)]
    pieces = []
    for index, (first, last) in enumerate(itertools.pairwise(edges)):
        final = index == len(edges) - 2
        pieces.append((await stream.speak(tokens[first:last], final=final)).samples)
    stream.close()
    return pieces


@pytest.mark.parametrize("version", [2, 3])
async def test_the_last_40_ms_of_a_stream_are_those_of_the_whole(version: int) -> None:
    # Upstream solves the last chunk with another attention mask than the ones before it: noise was
    # heard at the end of 89 in 100 streamed texts.
    engine = load_acoustic_engine(open_checkpoint(golden.model_dir(version)), EngineSettings())
    try:
        (whole,) = await spoken(engine, version, [])
        for cuts in ([52, 102], [8, 77]):
            pieces = await spoken(engine, version, cuts)
            streamed = np.concatenate(pieces)
            assert len(streamed) == len(whole)
            end, expected = streamed[-LAST:], whole[-LAST:]
            level = float(np.sqrt(np.mean(np.square(expected))))
            if version == 3 and cuts == [52, 102]:
                # Hops that meet the attention chunks: nothing was provisional.
                assert float(np.abs(end - expected).max()) < 0.01 * level
            if version == 3:
                assert np.corrcoef(end, expected)[0, 1] > 0.9
            assert float(np.sqrt(np.mean(np.square(end)))) == pytest.approx(level, rel=0.2)
            step = np.abs(np.diff(streamed))
            last_border = len(streamed) - len(pieces[-1])
            assert step[last_border - 1] <= 3 * np.quantile(step, 0.999)
    finally:
        await engine.close()


def test_upstreams_last_chunk_is_another_mel_than_ours() -> None:
    """The fault itself, and that ours continues what was heard (version 3; 2 is in `flow/`)."""
    tokens = golden.array(3, "flow", "tokens")[0].tolist()
    chunked = models.whole(models.prompt(), tokens, final=True)
    full = golden.array(3, "flow", "offline.mel")[0].T
    reference = golden.array(3, "flow", "streaming_final_reference.mel")[0].T
    frames = 2 * (len(tokens) % 25 or 25)
    assert torch.dist(chunked[-frames:], reference[-frames:], p=float("inf")) < 1e-4
    assert (full[-frames:] - reference[-frames:]).abs().max() > 1e-3
