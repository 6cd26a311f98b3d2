"""Tokens to samples of CosyVoice 2: upstream's schedule gives upstream's samples, ours no seams."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
import torch.nn.functional as functional
from torch import Tensor

from antiphon.engine.acoustic.engine import DecoderEngine
from antiphon.engine.acoustic.interface import AcousticSettings
from antiphon.engine.acoustic.loader import load_acoustic_engine, load_decoder
from antiphon.engine.acoustic.settings import EngineSettings
from antiphon.engine.checkpoint import open_checkpoint
from antiphon.engine.checkpoint.voices import acoustic_prompt
from antiphon.engine.errors import InvalidRequest, SynthesisFailed
from antiphon.engine.flow.cosyvoice2 import ConformerFlow
from antiphon.engine.vocoder.compat import UpstreamCache, upstream_window
from antiphon.engine.vocoder.hift_noncausal import CentredHiFT
from antiphon.engine.voice.voice import AcousticPrompt
from tests import golden
from tests.engine.flow.unet_cases import PLAN, voice

HOP, LOOK_AHEAD = 25, 3


@cache
def parts() -> tuple[ConformerFlow, CentredHiFT]:
    decoder = load_decoder(open_checkpoint(golden.model_dir(2)))
    return decoder.streamer.flow, decoder.vocoder._windows.hift  # type: ignore[attr-defined]


def silent_sft_voice() -> tuple[Tensor, Tensor, Tensor]:
    stored = torch.load(golden.model_dir(2) / "spk2info.pt", weights_only=True)
    embedding = stored["tiny_speaker"]["embedding"]
    return torch.zeros(1, 0, dtype=torch.long), torch.zeros(1, 0, 80), embedding


def offline(tokens: Tensor, prompt: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Upstream's call without streaming: (1, samples)."""
    flow, hift = parts()
    mel = flow.solve_whole(tokens, *prompt, PLAN, chunked=False)
    return upstream_window(hift, mel, None, final=True).emitted


def streamed(tokens: Tensor, prompt: tuple[Tensor, Tensor, Tensor]) -> list[Tensor]:
    """Upstream's calls with `stream=True` in a fresh process."""
    flow, hift = parts()
    prompt_tokens = prompt[0].shape[1]
    pieces: list[Tensor] = []
    cached: UpstreamCache | None = None
    hop, offset = HOP, 0
    take = hop + -prompt_tokens % hop
    while True:
        final = offset + take + LOOK_AHEAD > tokens.shape[1]
        stop = tokens.shape[1] if final else offset + take + LOOK_AHEAD
        mel = flow.solve_whole(tokens[:, :stop], *prompt, PLAN, final=final, chunked=not final)
        window = upstream_window(hift, mel[:, 2 * offset :], cached, final=final)
        pieces.append(window.emitted)
        cached = window.cache
        if final:
            return pieces
        offset += take
        hop = min(100, 2 * hop)
        take = hop


def test_offline_and_streamed_speech_are_the_reference_ones() -> None:
    tokens = golden.array(2, "e2e", "tokens")[None].long()
    golden.assert_close(offline(tokens, voice(2)), 2, "e2e", "offline_zero_noise.wav")
    pieces = streamed(tokens, voice(2))
    assert [piece.shape[1] for piece in pieces] == golden.notes(2)["e2e"]["stream"]["chunks"]
    golden.assert_close(torch.cat(pieces, dim=1), 2, "e2e", "stream_zero_noise.wav")


def test_the_first_seeded_chunk_is_the_reference_one() -> None:
    flow, hift = parts()
    tokens = golden.array(2, "e2e", "tokens")[None, :52].long()
    mel = flow.solve_whole(tokens, *voice(2), PLAN, final=False, chunked=True)
    torch.manual_seed(2024)
    torch.rand(1, 9)
    # Upstream draws into memory that lies harmonic by harmonic; the order of the draws follows it.
    noise = torch.randn_like(torch.zeros(1, 9, mel.shape[1] * 480).transpose(1, 2))
    window = upstream_window(hift, mel, None, final=False, noise=noise)
    golden.assert_close(window.emitted, 2, "e2e", "stream.wav")


def test_speed_is_the_reference_one() -> None:
    tokens = golden.array(2, "flow", "tokens")[:, :40].long()
    flow, hift = parts()
    mel = flow.solve_whole(tokens, *voice(2), PLAN, chunked=False).transpose(1, 2)
    faster = functional.interpolate(mel, size=int(mel.shape[2] / 1.3), mode="linear")
    golden.assert_close(faster, 2, "token2wav", "speed_1_3.mel_in")
    window = upstream_window(hift, faster.transpose(1, 2), None, final=True)
    golden.assert_close(window.emitted, 2, "token2wav", "speed_1_3.emitted")


def test_voice_conversion_and_stored_embeddings_are_the_reference_ones() -> None:
    whole = golden.array(2, "frontend", "vc.flow_prompt_speech_token").long()
    source = golden.array(2, "frontend", "vc.source_speech_token").long()
    # Upstream does not trim here: 102 tokens go with 203 frames.
    converted = offline(source, (whole, golden.array(2, "frontend", "mel"), voice(2)[2]))
    golden.assert_close(converted, 2, "modes", "vc.wav")
    tokens = golden.array(2, "modes", "sft.tokens")[None].long()
    spoken = offline(tokens, silent_sft_voice())[:, :48000]
    golden.assert_close(spoken, 2, "modes", "sft.wav")


def prompt_of_voice() -> AcousticPrompt:
    tokens, mel, embedding = voice(2)
    return acoustic_prompt(tokens[0].numpy(), mel[0].numpy(), embedding[0].numpy())


async def speak(engine: DecoderEngine, cuts: list[int], settings: AcousticSettings) -> list[Tensor]:
    tokens = golden.array(2, "flow", "tokens")[0].tolist()
    stream = await engine.open(prompt_of_voice(), settings)
    pieces = []
    edges = [0, *cuts, len(tokens)]
    for index in range(len(edges) - 1):
        hop = tokens[edges[index] : edges[index + 1]]
        spoken = await stream.speak(hop, final=index == len(edges) - 2)
        pieces.append(torch.from_numpy(spoken.samples))
    stream.close()
    return pieces


async def test_the_engine_speaks_version_2_without_seams() -> None:
    engine = load_acoustic_engine(open_checkpoint(golden.model_dir(2)), EngineSettings())
    try:
        settings = AcousticSettings()
        whole = torch.cat(await speak(engine, [], settings))
        pieces = await speak(engine, [8, 20, 52, 102], settings)
        assert [len(piece) for piece in pieces] == [
            960 * (8 - 3) - 3840,
            960 * 12,
            960 * 32,
            960 * 50,
            960 * (130 - 99) + 3840,
        ]
        cut = torch.cat(pieces)
        assert len(cut) == len(whole) == 130 * 960
        # Only the vocoder's held-back frames differ, and the parts of chunks heard early.
        seams = [int(sum(len(p) for p in pieces[: i + 1])) for i in range(4)]
        step = (cut[1:] - cut[:-1]).abs()
        usual = step.quantile(0.999)
        assert max(float(step[seam - 1]) for seam in seams) <= 3 * usual
        stream = await engine.open(prompt_of_voice(), settings)
        with pytest.raises(InvalidRequest, match="codebook"):
            await stream.speak([6561], final=True)
    finally:
        await engine.close()


async def test_turns_of_one_voice_share_its_prompt_and_do_not_touch_each_other() -> None:
    # Upstream keeps its hop on the model: the second caller waited 4 s for a first sound.
    engine = load_acoustic_engine(open_checkpoint(golden.model_dir(2)), EngineSettings())
    try:
        settings = AcousticSettings(steps=2)
        first = await speak(engine, [28, 60], settings)
        second = await speak(engine, [28, 60], settings)
        assert [len(piece) for piece in first] == [len(piece) for piece in second]
        assert all(torch.equal(one, two) for one, two in zip(first, second, strict=True))
    finally:
        await engine.close()


@pytest.mark.parametrize("version", [1, 2])
async def test_a_mel_that_is_not_finite_ends_its_turn_alone(version: int) -> None:
    engine = load_acoustic_engine(open_checkpoint(golden.model_dir(version)), EngineSettings())
    nobody = np.zeros(0, np.int64), np.zeros((0, 80), np.float32)
    broken = acoustic_prompt(*nobody, np.full(192, np.nan, np.float32))
    whole = acoustic_prompt(*nobody, np.ones(192, np.float32))
    try:
        settings = AcousticSettings(steps=1)
        bad, good = await engine.open(broken, settings), await engine.open(whole, settings)
        with pytest.raises(SynthesisFailed):
            await bad.speak([1, 2, 3, 4, 5, 6], final=True)
        spoken = await good.speak([1, 2, 3, 4, 5, 6], final=True)
        assert np.isfinite(spoken.samples).all()
        assert len(spoken.samples) > 0
    finally:
        await engine.close()
