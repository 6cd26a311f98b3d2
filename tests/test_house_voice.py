"""The nano checkpoint that comes with the package: whole, and as good as its gate said."""

from __future__ import annotations

import asyncio
import json
import wave
from pathlib import Path

import numpy as np
import pytest
import torch

from antiphon.engine.checkpoint import open_checkpoint
from antiphon.engine.interface import FinishReason
from antiphon.engine.phone_codes import PHONES, SILENCE, begins, phone_of
from antiphon.engine.speech_lm.request import Sampling, SpeechLMRequest
from antiphon.engine.speech_lm.torch_backend import TorchSpeechLM
from antiphon.engine.text.text_stream import ArpabetTextStream
from antiphon.engine.voice.voice import LMPrompt
from antiphon.server.loading import house_checkpoint
from antiphon.training.data.phones import base, pronounce
from antiphon.training.data.sentences import Sentence
from antiphon.training.data.speakers import HOUSE
from antiphon.training.export import MAX_BYTES, PROMPT_TOKENS
from bench.phone_listener import closest
from bench.voice import run
from tests.engine.speech_lm.cases import cut, stream
from tests.sentences import OWN

ROOT = Path(__file__).parent.parent
TEXTS = (
    "Turn left after the bridge, then keep walking until you see the bakery.",
    "I am sorry, that seat is already taken.",
    "On the way home, the young doctor found a letter behind the kitchen clock.",
    "In the middle of the night, the captain opened the window and looked outside.",
    "Nobody expected the small team to finish before lunch.",
    "Please repeat the last four digits of your card number.",
    "Yes.",
    "Good evening, this is Lisa speaking.",
)


@pytest.fixture(scope="module")
def nano() -> Path:
    folder = house_checkpoint()
    assert folder is not None
    return folder


def test_it_is_whole_small_and_says_where_it_comes_from(nano: Path) -> None:
    files = [path for path in nano.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= MAX_BYTES
    checkpoint = open_checkpoint(nano)
    assert checkpoint.missing_files() == []
    origin = json.loads((nano / "origin.json").read_text())
    assert all(len(origin[name]) == 64 for name in ("recipe_sha256", "data_sha256"))
    assert len(origin["git_commit"]) == 40


def test_six_voices_have_prompts_of_78_tokens(nano: Path) -> None:
    voices = open_checkpoint(nano).voices
    assert list(voices) == list(HOUSE)
    for voice in voices.values():
        assert voice.acoustic.tokens.shape[-1] == PROMPT_TOKENS
    prompts = json.loads((nano / "prompts" / "prompts.json").read_text())
    assert len(prompts) == 4
    for file in (nano / "prompts").glob("*.wav"):
        with wave.open(str(file)) as opened:
            assert 3 <= opened.getnframes() / opened.getframerate() <= 30


async def test_its_codes_are_the_phones_of_the_text(nano: Path) -> None:
    """Streamed, as sessions speak; phones by the start flags."""
    checkpoint = open_checkpoint(nano)
    config, ras = checkpoint.lm_config, checkpoint.lm_config.sampling
    lm = TorchSpeechLM.load(checkpoint, slots=8, positions=512, max_waiting=16)

    async def said(seed: int, text: str) -> list[str]:
        front_end = ArpabetTextStream(checkpoint.tokenizer)
        ids = [i for piece in front_end.push(text) + front_end.end() for i in piece.ids]
        sampling = Sampling(0.3, ras.top_k, ras.win_size, ras.tau_r, seed=seed)
        request = SpeechLMRequest(
            LMPrompt((checkpoint.tokenizer.end_of_prompt,)),
            stream(cut(tuple(ids), (3,))),
            sampling,
            config.min_ratio,
            config.max_ratio,
        )
        generation = lm.generate(request)
        codes = [code async for code in generation]
        assert generation.finish_reason is FinishReason.STOP
        phones = [phone_of(code) for code in codes if begins(code)]
        return [PHONES[phone] for phone in phones if phone != SILENCE]

    try:
        heard = await asyncio.gather(*(said(seed, text) for seed, text in enumerate(TEXTS)))
    finally:
        await lm.close()
    wrong = count = 0
    for text, phones in zip(TEXTS, heard, strict=True):
        words = pronounce(Sentence(tuple(text.lower().split())))
        assert words is not None
        wanted = [base(phone) for word in words for phone in word.phones]
        wrong += closest(wanted, phones)
        count += len(wanted)
    assert wrong <= 0.02 * count


@pytest.mark.slow
def test_it_passes_its_gate_in_a_short_form(nano: Path) -> None:
    torch.set_num_threads(1)
    links, alike, last = run(nano, ROOT / "configs" / "nano.yaml", OWN, (12,), 2, 6)
    by_name = {link.name: link for link in links}
    teacher, text = by_name["teacher"], by_name["text, first hop 12"]
    print([link.row() for link in links], alike, last)
    assert text.word_error_rate <= teacher.word_error_rate + 0.12
    assert np.mean(text.scores) >= np.mean(teacher.scores) - 0.4
