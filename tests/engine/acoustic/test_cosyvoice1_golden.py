"""Tokens to samples of CosyVoice 1: upstream's windows give upstream's samples, ours add up."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor

from antiphon.engine.acoustic.interface import AcousticSettings
from antiphon.engine.acoustic.loader import load_acoustic_engine, load_decoder
from antiphon.engine.acoustic.settings import EngineSettings
from antiphon.engine.checkpoint import open_checkpoint
from antiphon.engine.checkpoint.voices import acoustic_prompt
from antiphon.engine.flow.cosyvoice1 import Continuation, RegulatedFlow
from antiphon.engine.flow.cosyvoice1_stream import RegulatedStreamer
from antiphon.engine.flow.flow_matching import plan_solver
from antiphon.engine.vocoder.compat import UpstreamCache, upstream_fade, upstream_window
from antiphon.engine.vocoder.hift_noncausal import CentredHiFT
from antiphon.engine.voice.voice import AcousticPrompt
from tests import golden
from tests.engine.flow.unet_cases import PLAN, tokens, voice

OVERLAP = 34
WINDOWS = ((0, 120), (100, 220), (200, 260))


@cache
def parts() -> tuple[RegulatedFlow, CentredHiFT]:
    decoder = load_decoder(open_checkpoint(golden.model_dir(1)))
    return decoder.streamer.flow, decoder.vocoder._windows.hift  # type: ignore[attr-defined]


def test_upstreams_windows_are_the_reference_ones() -> None:
    flow, hift = parts()
    before: Continuation | None = None
    tail: Tensor | None = None
    cached: UpstreamCache | None = None
    for index, (first, last) in enumerate(WINDOWS):
        final = index == len(WINDOWS) - 1
        noise = golden.array(1, "token2wav", f"{index}.noise").transpose(1, 2)
        mel, before = flow.solve_window(tokens(1)[:, first:last], *voice(1), PLAN, noise, before)
        if tail is not None:
            mel = upstream_fade(mel.transpose(1, 2), tail.transpose(1, 2)).transpose(1, 2)
        if not final:
            mel, tail = mel[:, :-OVERLAP], mel[:, -OVERLAP:]
        window = upstream_window(hift, mel, cached, final=final)
        cached = window.cache
        golden.assert_close(window.mel.transpose(1, 2), 1, "token2wav", f"{index}.mel_in")
        golden.assert_close(window.emitted, 1, "token2wav", f"{index}.emitted")
        if index == 1:
            golden.assert_close(window.raw, 1, "token2wav", "1.wav_raw")
            golden.assert_close(window.source[:, None], 1, "token2wav", "1.source")


def test_a_call_without_streaming_is_the_reference_one() -> None:
    flow, hift = parts()
    frames = voice(1)[1].shape[1] + flow.frames(80)
    generator = torch.Generator().manual_seed(777)
    noise = torch.randn(1, 80, frames, generator=generator).transpose(1, 2)
    mel, _ = flow.solve_window(tokens(1)[:, :80], *voice(1), PLAN, noise)
    spoken = upstream_window(hift, mel, None, final=True).emitted
    golden.assert_close(spoken, 1, "token2wav", "offline80.emitted")


def test_upstreams_hops_give_upstreams_windows() -> None:
    # The served stream cuts the same windows; its noise is fixed, so a text sounds the same twice.
    streamer = RegulatedStreamer(parts()[0])
    prompt_tokens, mel, embedding = voice(1)
    known = streamer.voice(prompt_tokens[0], mel[0], embedding[0])
    state = streamer.start(known, plan_solver("euler", 1, 0.7))
    frames = []
    for index, (_, last) in enumerate(WINDOWS):
        first = WINDOWS[index - 1][1] if index else 0
        state = streamer.append(state, tokens(1)[0, first:last].tolist())
        solution = streamer.next_solution(state, final=index == 2)
        assert solution is not None
        while not solution.done:
            streamer.solve_step([solution])
        place, spoken = streamer.speech(state, solution)
        assert place == sum(frames)
        frames.append(len(spoken))
        state = streamer.finish(state, solution, None)
    assert frames == [172, 172, 103]
    assert sum(frames) == parts()[0].frames(260)


def prompt_of_voice() -> AcousticPrompt:
    prompt_tokens, mel, embedding = voice(1)
    return acoustic_prompt(prompt_tokens[0].numpy(), mel[0].numpy(), embedding[0].numpy())


@pytest.mark.parametrize("cuts", [[], [120, 220], [7, 46, 60, 133, 259], [259]])
async def test_the_engine_speaks_version_1_for_as_long_as_its_tokens_last(cuts: list[int]) -> None:
    engine = load_acoustic_engine(open_checkpoint(golden.model_dir(1)), EngineSettings())
    try:
        assert engine.sample_rate == 22050
        stream = await engine.open(prompt_of_voice(), AcousticSettings(steps=1))
        pieces = []
        edges = [0, *cuts, 260]
        for index in range(len(edges) - 1):
            hop = tokens(1)[0, edges[index] : edges[index + 1]].tolist()
            spoken = await stream.speak(hop, final=index == len(edges) - 2)
            pieces.append(torch.from_numpy(spoken.samples))
        stream.close()
        speech = torch.cat(pieces)
        assert len(speech) == 256 * int(260 / 50 * 22050 / 256)
        usual = (speech[1:] - speech[:-1]).abs().quantile(0.999)
        where = 0
        for piece in pieces[:-1]:
            where += len(piece)
            if where:
                assert (speech[where] - speech[where - 1]).abs() <= 3 * usual
    finally:
        await engine.close()


async def test_a_turn_shorter_than_the_overlap_is_spoken() -> None:
    engine = load_acoustic_engine(open_checkpoint(golden.model_dir(1)), EngineSettings())
    try:
        for length in (1, 5, 19):
            stream = await engine.open(prompt_of_voice(), AcousticSettings(steps=1))
            spoken = await stream.speak(tokens(1)[0, :length].tolist(), final=True)
            assert len(spoken.samples) == 256 * max(1, int(length / 50 * 22050 / 256))
            stream.close()
    finally:
        await engine.close()
