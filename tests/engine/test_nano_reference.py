"""Nano's greedy codes and its mel, against stored ones: a change of either is a change of speech.

`python -m tests.engine.test_nano_reference` stores them anew.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from antiphon.engine.checkpoint import open_checkpoint
from antiphon.engine.flow.flow import Flow
from antiphon.engine.flow.flow_matching import plan_solver
from antiphon.engine.speech_lm.request import Sampling, SpeechLMRequest
from antiphon.engine.speech_lm.torch_backend import TorchSpeechLM
from antiphon.engine.voice.voice import LMPrompt
from tests import golden

NANO = golden.ROOT.parent / "shared" / "nano"
STORED = Path(__file__).parents[1] / "data" / "nano_reference.safetensors"
SENTENCES = Path(__file__).parents[1] / "data" / "nano_sentences.json"


async def greedy_codes() -> list[list[int]]:
    checkpoint = open_checkpoint(NANO)
    config = checkpoint.lm_config
    prompt = LMPrompt((checkpoint.tokenizer.end_of_prompt,))
    lm = TorchSpeechLM.load(checkpoint, slots=1, positions=512)
    found = []
    try:
        for entry in json.loads(SENTENCES.read_text()):
            ids = tuple(checkpoint.tokenizer.encode(entry["phonemes"]))
            sampling = Sampling(0.8, 25, 10, 0.8, greedy=True)
            request = SpeechLMRequest(prompt, ids, sampling, config.min_ratio, config.max_ratio)
            found.append([code async for code in lm.generate(request)])
    finally:
        await lm.close()
    return found


def mel(codes: list[int]) -> Tensor:
    checkpoint = open_checkpoint(NANO)
    flow = Flow(checkpoint.flow_config)
    flow.load_state_dict(checkpoint.flow_state_dict(), strict=True)
    flow.eval().requires_grad_(False)
    voice = checkpoint.voices["hazel"].acoustic
    return flow.solve_whole(
        torch.tensor([codes]),
        torch.from_numpy(voice.tokens[:78])[None],
        torch.from_numpy(voice.mel[:156])[None],
        torch.from_numpy(voice.embedding)[None],
        plan_solver("euler", 10, 0.7),
    )[0]


@pytest.mark.skipif(not NANO.is_dir(), reason="the nano checkpoint lies in ../shared")
def test_greedy_codes_and_mel_are_the_stored_ones() -> None:
    stored = load_file(STORED)
    codes = asyncio.run(greedy_codes())
    assert np.concatenate([np.array(c) for c in codes]).tolist() == stored["codes"].tolist()
    assert (mel(codes[0]) - stored["mel"]).abs().max() < 1e-3


if __name__ == "__main__":
    made = asyncio.run(greedy_codes())
    flat = torch.tensor([code for sentence in made for code in sentence])
    save_file({"codes": flat, "mel": mel(made[0]).contiguous()}, STORED)
