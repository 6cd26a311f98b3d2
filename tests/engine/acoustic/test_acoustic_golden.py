"""Tokens to samples, against the reference implementation's own numbers."""

from __future__ import annotations

import asyncio
import math

import numpy as np
import torch

from antiphon.engine.acoustic.decoder import Portion
from antiphon.engine.acoustic.engine import TorchAcousticEngine
from antiphon.engine.acoustic.interface import AcousticSettings
from antiphon.engine.voice.voice import AcousticPrompt
from tests import golden
from tests.engine.acoustic import models

_START = models.source_noise().start


def _vocode(mel: torch.Tensor) -> torch.Tensor:
    return _spoken(mel, final=True)


def _spoken(mel: torch.Tensor, *, final: bool) -> torch.Tensor:
    vocoder = models.vocoder()
    state = vocoder.place(vocoder.start(), 0, mel)
    pieces, done = [], False
    while not done:
        (portion,) = vocoder.speak([(state, final)])
        assert isinstance(portion, Portion)
        pieces.append(torch.from_numpy(portion.samples))
        state, done = portion.state, portion.done
    return torch.cat(pieces)[None]


def _offline(prompt: AcousticPrompt, tokens: list[int]) -> torch.Tensor:
    """Full attention, as upstream's offline call and its last chunk have it."""
    mel = models.flow().solve_whole(
        torch.tensor([tokens], dtype=torch.long),
        torch.from_numpy(prompt.tokens)[None],
        torch.from_numpy(prompt.mel)[None],
        torch.from_numpy(prompt.embedding)[None],
        models.PLAN,
        chunked=False,
    )
    return _vocode(mel[0])


def test_end_to_end_offline() -> None:
    tokens = golden.array(3, "e2e", "tokens").tolist()
    golden.assert_close(_offline(models.prompt(), tokens), 3, "e2e", "offline.wav")


def _upstream_stream(tokens: list[int]) -> torch.Tensor:
    """Upstream's schedule: chunk mask for all but the last chunk, which has full attention."""
    prompt = models.prompt()
    mels = [models.whole(prompt, tokens[:n], final=False) for n in (52, 102)]
    offline = models.flow().solve_whole(
        torch.tensor([tokens]),
        torch.from_numpy(prompt.tokens)[None],
        torch.from_numpy(prompt.mel)[None],
        torch.from_numpy(prompt.embedding)[None],
        models.PLAN,
        chunked=False,
    )[0]
    return _vocode(torch.cat([mels[0], mels[1][98:], offline[198:]]))


def test_end_to_end_streamed_as_upstream_does() -> None:
    wav = _upstream_stream(golden.array(3, "e2e", "tokens").tolist())
    golden.assert_close(wav, 3, "e2e", "stream.wav")


def test_token2wav_pieces_as_upstream_emits_them() -> None:
    wav = _upstream_stream(golden.array(3, "flow", "tokens")[0].tolist())
    start = 0
    for call in range(3):
        length = golden.notes(3)["token2wav_calls"][call]["emitted_len"]
        golden.assert_close(wav[:, start : start + length], 3, "token2wav", f"{call}.emitted")
        start += length


def test_a_streamed_call_of_the_vocoder_is_the_reference_one() -> None:
    """Call 1: all mel so far, of which the look-ahead of F0 net and vocoder is held back."""
    tokens = golden.array(3, "flow", "tokens")[0].tolist()
    mel = models.whole(models.prompt(), tokens[:102], final=False)[None]
    golden.assert_close(mel.transpose(1, 2), 3, "token2wav", "1.mel_in")
    _, excitation = _upstream_excitation(mel)
    golden.assert_close(excitation[:, None, : 480 * 195], 3, "token2wav", "1.source")
    samples = _spoken(mel[0], final=False)
    golden.assert_close(samples[:, : 480 * 190], 3, "token2wav", "1.wav_raw")


def test_speed_changes_by_interpolating_the_mel() -> None:
    mel = golden.array(3, "token2wav", "speed_1_3.mel_in").transpose(1, 2)
    f0, excitation = _upstream_excitation(mel)
    golden.assert_close(models.hift().decode(mel, excitation), 3, "token2wav", "speed_1_3.emitted")
    ours, _ = models.hift()(mel, models.source_noise().draw(_START, 480 * f0.shape[1])[0][None])
    assert (ours - golden.array(3, "token2wav", "speed_1_3.emitted")).abs().max() < 1e-4


def _upstream_excitation(mel: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The source with upstream's phase, which loses digits as it grows: float32, never wrapped."""
    source = models.hift().m_source
    f0 = models.hift().f0_predictor(mel.double()).float()
    steps = (f0[..., None] * torch.arange(1, 10) / 24000) % 1
    sines = (steps.cumsum(1) * 2 * math.pi * 480).sin() * 0.1
    noise = models.source_noise().draw(_START, 480 * f0.shape[1])[0][None]
    voiced = (f0 > 10).float()[..., None]
    level = voiced * 0.003 + (1 - voiced) * (0.1 / 3)
    mixed = (sines * voiced).repeat_interleave(480, 1) + level.repeat_interleave(480, 1) * noise
    return f0, torch.tanh(source.l_linear(mixed)).squeeze(-1)


def test_voice_conversion() -> None:
    tokens = golden.array(3, "frontend", "vc.source_speech_token")[0].tolist()
    ids = golden.array(3, "frontend", "vc.flow_prompt_speech_token")[0]
    mel = golden.array(3, "frontend", "mel")[0]
    embedding = golden.array(3, "frontend", "embedding")[0]
    mel = mel if mel.shape[-1] == 80 else mel.t()
    prompt = AcousticPrompt("vc", ids.long().numpy(), mel.numpy(), embedding.numpy())
    golden.assert_close(_offline(prompt, tokens), 3, "modes", "vc.wav")


def test_stored_embedding_without_any_prompt() -> None:
    tokens = golden.array(3, "modes", "sft.tokens").tolist()
    prompt = models.checkpoint().voices["tiny_speaker"].acoustic
    assert len(prompt.tokens) == 0
    golden.assert_close(_offline(prompt, tokens), 3, "modes", "sft.wav")


async def test_the_engine_streams_what_upstream_streams_before_its_last_chunk() -> None:
    tokens = golden.array(3, "flow", "tokens")[0].tolist()
    engine = TorchAcousticEngine(models.flow(), models.hift(), models.small_settings())
    try:
        stream = await engine.open(models.prompt(), AcousticSettings())
        pieces = [await stream.speak(tokens[:52], final=False)]
        pieces.append(await stream.speak(tokens[52:102], final=False))
        pieces.append(await stream.speak(tokens[102:], final=True))
        stream.close()
    finally:
        await asyncio.wait_for(engine.close(), 5)
    wav = torch.from_numpy(np.concatenate([piece.samples for piece in pieces]))[None]
    assert wav.shape[1] == 960 * len(tokens)
    golden.assert_close(wav[:, :43200], 3, "token2wav", "0.emitted")
    golden.assert_close(wav[:, 43200:91200], 3, "token2wav", "1.emitted")
