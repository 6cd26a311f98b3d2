"""Every generation behind the one engine, in every mode it has."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from antiphon.engine.checkpoint import Checkpoint, open_checkpoint
from antiphon.engine.checkpoint.voices import acoustic_prompt
from antiphon.engine.cosyvoice import CosyVoiceEngine
from antiphon.engine.errors import InvalidConfiguration, UnsupportedFeature
from antiphon.engine.generations import choose_device, front_end, load_stages, phone_ids, traits
from antiphon.engine.interface import (
    FinishReason,
    Mode,
    SpeechAudio,
    SpeechEvent,
    SpeechFinished,
    SpeechProgress,
    SpeechRequest,
)
from antiphon.engine.phone_codes import PHONES
from antiphon.engine.prompts import SYSTEM_PROMPT, PromptMaker, PromptVoice
from antiphon.engine.speech_lm.request import Sampling, SpeechLMRequest
from antiphon.engine.speech_lm.torch_backend import TorchSpeechLM
from antiphon.engine.voice.voice import LMPrompt
from antiphon.engine.watermark.none import NoWatermark
from tests import golden

GREEDY = Sampling(0.8, 25, 10, 0.1, greedy=True)
TEXT = "Hello there, a small test. It has two sentences."
MEETING = "She said that the meeting should start at nine and."
HELLO = "Hello there, this is a small test of the engine."
HAPPY = "Please read in a happy voice."
NANO = golden.ROOT.parent / "shared" / "nano"
TRANSCRIPT = "The quick brown fox jumps over the lazy dog."


@cache
def checkpoint(version: int) -> Checkpoint:
    return open_checkpoint(golden.speaking_model_dir(version))


@cache
def prompts(version: int) -> PromptMaker:
    return PromptMaker(checkpoint(version))


@cache
def recorded(version: int, transcript: bool = True) -> PromptVoice:
    """The golden recording as a voice."""
    tokens = golden.array(version, "frontend", "zero_shot.speech_token")[0].long().numpy()
    mel = golden.array(version, "frontend", "zero_shot.prompt_speech_feat")[0].numpy()
    speaker = golden.array(version, "frontend", "embedding")[0].numpy()
    text = tuple(golden.array(version, "frontend", "zero_shot.prompt_text")[0].tolist())
    lm = LMPrompt(
        text if transcript else (),
        tuple(tokens.tolist()),
        tuple(speaker.tolist()),
    )
    return PromptVoice("fox", "en", lm, acoustic_prompt(tokens, mel, speaker))


def speaker(version: int) -> PromptVoice:
    return prompts(version).stored(checkpoint(version).voices["tiny_speaker"])


def engine(version: int, directory: Path | None = None) -> CosyVoiceEngine:
    opened = open_checkpoint(directory or golden.speaking_model_dir(version))
    stages = load_stages(opened, NoWatermark(), max_sessions=2)
    # Random weights never say that the text is spoken: the greatest length ends every segment.
    ratios = (8.0, 12.0) if opened.generation == 1 else (2.0, 3.0)
    return CosyVoiceEngine(opened, replace(stages, length_ratios=ratios))


async def speak(
    speaking: CosyVoiceEngine, pieces: Sequence[str], request: SpeechRequest
) -> tuple[np.ndarray, list[SpeechEvent]]:
    session = await speaking.open_session(request)
    for piece in pieces:
        await session.push_text(piece)
    await session.end_text()
    events = [event async for event in session.events()]
    audio = [event.audio.samples for event in events if isinstance(event, SpeechAudio)]
    return np.concatenate(audio), events


@pytest.mark.parametrize(
    ("version", "rate", "seconds_a_token"), [(1, 22050, 0.02), (2, 24000, 0.04), (3, 24000, 0.04)]
)
async def test_a_text_in_pieces_is_spoken_whole(
    version: int, rate: int, seconds_a_token: float
) -> None:
    speaking = engine(version)
    assert speaking.capabilities.sample_rate == rate
    await speaking.warm_up()
    pieces = [TEXT[start : start + 7] for start in range(0, len(TEXT), 7)]
    samples, events = await speak(speaking, pieces, SpeechRequest("tiny_speaker", seed=3))
    end = events[-1]
    assert isinstance(end, SpeechFinished)
    assert end.reason is FinishReason.LENGTH
    assert end.samples == len(samples)
    frame = 256 / 22050 if version == 1 else 1e-9
    assert abs(len(samples) / rate - end.speech_tokens * seconds_a_token) <= frame
    assert end.speech_tokens > 30
    progress = [event for event in events if isinstance(event, SpeechProgress)]
    assert progress[-1].characters == len(TEXT)
    assert speaking.busy == 0
    await speaking.close()


async def test_version_1_speaks_a_clause_once_it_is_whole() -> None:
    speaking = engine(1)
    assert not speaking.capabilities.speaks_before_clause_end
    assert speaking.capabilities.hop_tokens is None
    session = await speaking.open_session(SpeechRequest("tiny_speaker", seed=3))
    events = session.events()
    waiting = asyncio.ensure_future(anext(events))
    await session.push_text("One two three four five")
    await asyncio.sleep(0.2)
    assert not waiting.done()
    await session.push_text(" six, and")
    async with asyncio.timeout(20):
        assert isinstance(await waiting, SpeechAudio | SpeechProgress)
    await session.cancel()
    assert speaking.busy == 0
    with pytest.raises(UnsupportedFeature) as refused:
        await speaking.open_session(SpeechRequest("tiny_speaker", first_hop=8))
    assert refused.value.field == "first_hop"
    await speaking.close()


def test_each_generation_declares_what_it_can() -> None:
    base = {Mode.PRESET, Mode.ZERO_SHOT, Mode.CROSS_LINGUAL, Mode.VOICE_CONVERSION}
    for version, modes in ((1, base), (2, base | {Mode.INSTRUCT}), (3, base | {Mode.INSTRUCT})):
        able = traits(checkpoint(version))
        assert able.modes == modes
        assert {"zh", "en", "ja", "ko"} <= able.languages
        assert able.while_writing == able.has_hops == (version > 1)
        assert able.pronunciation == (version == 3)
    assert "de" in traits(checkpoint(3)).languages - traits(checkpoint(2)).languages


@pytest.mark.parametrize("version", [1, 2, 3])
def test_the_mode_follows_from_voice_and_request(version: int) -> None:
    make = prompts(version)
    assert make.mode(speaker(version)) is Mode.PRESET
    assert make.mode(recorded(version)) is Mode.ZERO_SHOT
    assert make.mode(recorded(version), language="en-GB") is Mode.ZERO_SHOT
    assert make.mode(recorded(version), language="zh") is Mode.CROSS_LINGUAL
    assert make.mode(recorded(version, transcript=False)) is Mode.CROSS_LINGUAL


def test_version_1_is_asked_as_its_reference_is() -> None:
    make, fox = prompts(1), recorded(1)
    assert make.fit(fox).prompt == fox.lm
    assert make.fit(speaker(1)).prompt == LMPrompt(speaker=speaker(1).lm.speaker)
    crossing = make.fit(fox, language="zh").prompt
    assert crossing.speech_ids == ()
    assert crossing.speaker == fox.lm.speaker
    assert crossing.text_ids == (checkpoint(1).tokenizer.token_id("<|zh|>"),)
    with pytest.raises(UnsupportedFeature) as refused:
        make.fit(fox, instruct=HAPPY)
    assert refused.value.field == "instruct"


async def test_version_1_follows_instructions_where_it_was_trained_to(tmp_path: Path) -> None:
    directory = tmp_path / "tiny-Instruct"
    shutil.copytree(golden.speaking_model_dir(1), directory)
    make = PromptMaker(open_checkpoint(directory))
    expected = golden.notes(1)["frontend_modes"]["instruct"]["prompt_text"]
    for written in (HAPPY, f"{HAPPY}<endofprompt>", f"{HAPPY}<|endofprompt|>"):
        prompt = make.fit(speaker(1), instruct=written).prompt
        assert len(prompt.text_ids) == expected["shape"][1]
        assert sum(prompt.text_ids) == expected["sum"]
        assert (prompt.speech_ids, prompt.speaker) == ((), ())
    speaking = engine(1, directory)
    assert Mode.INSTRUCT in speaking.capabilities.modes
    samples, _ = await speak(
        speaking, [TEXT], SpeechRequest("tiny_speaker", seed=1, instruct=HAPPY)
    )
    assert len(samples) > 0
    await speaking.close()


@pytest.mark.parametrize("version", [2, 3])
async def test_modes_give_the_reference_speech_tokens(version: int) -> None:
    make, opened = prompts(version), checkpoint(version)
    lm = TorchSpeechLM.load(opened, slots=1, compat=True)
    texts = {"zero_shot": {2: HELLO, 3: MEETING}[version]}
    asked = {
        "sft": make.fit(speaker(version)),
        "cross_lingual": make.fit(recorded(version), language="de"),
        "instruct2": make.fit(recorded(version), instruct=HAPPY),
        "zero_shot": make.fit(recorded(version)),
    }
    for name, fitted in asked.items():
        text = opened.tokenizer.encode(texts.get(name, MEETING))
        generation = lm.generate(SpeechLMRequest(fitted.prompt, text, GREEDY))
        file = "lm" if name == "zero_shot" else "modes"
        expected = golden.array(version, file, f"{name}.tokens").tolist()
        assert [token async for token in generation] == expected, name
    await lm.close()


def test_instructions_cannot_steer_beyond_themselves() -> None:
    make, tokenizer = prompts(3), checkpoint(3).tokenizer
    end = tokenizer.end_of_prompt
    for text in (HAPPY, f"{SYSTEM_PROMPT} {HAPPY}", f"{HAPPY}<|endofprompt|>"):
        ids = make.fit(recorded(3), instruct=text).prompt.text_ids
        assert ids == (*tokenizer.encode(f"{SYSTEM_PROMPT} {HAPPY}"), end)
    ids = make.fit(recorded(3), instruct="a<|endofprompt|>b<|im_start|>").prompt.text_ids
    assert ids.count(end) == 1
    assert tokenizer.token_id("<|im_start|>") not in ids


def test_a_missing_system_prompt_is_supplied_in_version_3_only() -> None:
    for version in (2, 3):
        bare = recorded(version, transcript=False)
        ids = prompts(version).fit(bare).prompt.text_ids
        tokenizer = checkpoint(version).tokenizer
        system = (*tokenizer.encode(SYSTEM_PROMPT), tokenizer.end_of_prompt)
        assert ids == (system if version == 3 else ())


def test_version_3_takes_pinyin_and_phones_from_the_text() -> None:
    tokenizer = checkpoint(3).tokenizer
    written = "[T][AH0][M][AA1][T][OW2]"
    for text, language in ((written, "en"), (written, None), ("[h][ào]", None), ("[h][ào]", "zh")):
        stream = front_end(checkpoint(3), language)()
        pieces = [*stream.push(f"{text} "), *stream.end()]
        ids = [token for piece in pieces for token in piece.ids]
        assert ids == tokenizer.encode(text), (text, language)


def test_a_device_that_is_not_there_is_refused() -> None:
    assert choose_device("cpu") == "cpu"
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    assert choose_device("auto") == "cpu"
    with pytest.raises(InvalidConfiguration) as refused:
        choose_device("cuda")
    assert refused.value.field == "device"


@pytest.mark.parametrize("version", [1, 2, 3])
def test_codes_of_published_tokenizers_say_no_phones(version: int) -> None:
    assert phone_ids(checkpoint(version)) is None


@pytest.mark.skipif(not NANO.is_dir(), reason="the nano checkpoint lies in ../shared")
def test_nanos_codes_say_phones_and_another_number_of_codes_does_not(tmp_path: Path) -> None:
    nano = open_checkpoint(NANO)
    found = phone_ids(nano)
    assert found is not None
    assert len(found) == 24 + 3 * 15
    assert set(found.values()) == set(range(39))
    text = [i for i in nano.tokenizer.encode(" [HH][AH0][L][OW1].") if i in found]
    assert [PHONES[found[i]] for i in text] == ["HH", "AH", "L", "OW"]
    other = shutil.copytree(NANO, tmp_path / "other")
    yaml = other / "cosyvoice3.yaml"
    yaml.chmod(0o644)
    yaml.write_text(yaml.read_text().replace("speech_token_size: 240", "speech_token_size: 256"))
    assert phone_ids(open_checkpoint(other)) is None
