"""A recording said again in another voice, by every generation."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engine.acoustic.interface import AcousticSettings
from antiphon.engine.audio_file import DecodedAudio, decode_audio
from antiphon.engine.checkpoint import open_checkpoint
from antiphon.engine.conversion import ConversionSession, windows
from antiphon.engine.cosyvoice import CosyVoiceEngine
from antiphon.engine.errors import ConsentRequired, InvalidRequest, UnsupportedFeature
from antiphon.engine.generations import load_stages
from antiphon.engine.hops import HopSettings
from antiphon.engine.interface import (
    MAX_SOURCE_S,
    FinishReason,
    Mode,
    SpeechAudio,
    SpeechFinished,
    SpeechRequest,
)
from antiphon.engine.session import SessionSettings, SessionVoice
from antiphon.engine.voice.reference import ReferenceExtractor
from antiphon.engine.voice.voice import LMPrompt
from antiphon.engine.watermark.none import NoWatermark
from tests import golden
from tests.engine.test_generations import recorded

ONE_HOP = HopSettings(first_hop=50, max_hop=50)


def source() -> DecodedAudio:
    return decode_audio(golden.golden_path("audio/source_16k.wav"))


async def converted(
    engine: CosyVoiceEngine, request: SpeechRequest
) -> tuple[np.ndarray, SpeechFinished]:
    session = await engine.open_session(request)
    audio, end = [], None
    async for event in session.events():
        if isinstance(event, SpeechAudio):
            audio.append(event.audio.samples)
        elif isinstance(event, SpeechFinished):
            end = event
    assert end is not None
    return np.concatenate(audio), end


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_every_generation_converts(version: int) -> None:
    engine = CosyVoiceEngine.load(golden.speaking_model_dir(version), NoWatermark())
    assert Mode.VOICE_CONVERSION in engine.capabilities.modes
    samples, end = await converted(engine, SpeechRequest("tiny_speaker", source=source()))
    expected = golden.array(version, "frontend", "vc.source_speech_token").shape[1]
    assert (end.reason, end.speech_tokens) == (FinishReason.STOP, expected)
    seconds = len(samples) / engine.capabilities.sample_rate
    assert seconds == pytest.approx(len(source().samples) / 16_000, abs=0.03)
    assert np.isfinite(samples).all()
    faster, _ = await converted(engine, SpeechRequest("tiny_speaker", source=source(), speed=1.25))
    assert len(faster) == pytest.approx(len(samples) / 1.25, rel=0.06)
    assert engine.busy == 0
    await engine.close()


@pytest.mark.parametrize("version", [2, 3])
async def test_a_recording_becomes_the_speech_of_its_reference_tokens(version: int) -> None:
    """From the audio file on, through a session. What flow and vocoder make of these tokens is
    compared with the reference's own samples in `acoustic/`, under upstream's full attention."""
    opened = open_checkpoint(golden.model_dir(version))
    stages = load_stages(opened, NoWatermark(), max_sessions=1)
    extractor = ReferenceExtractor.of(opened)
    prompt = recorded(version).acoustic

    async def listen(audio: DecodedAudio) -> np.ndarray:
        return extractor.tokens(audio)

    session = ConversionSession(
        stages, SessionVoice(LMPrompt(), prompt), SessionSettings(ONE_HOP), source(), listen
    )
    pieces = [e.audio.samples async for e in session.events() if isinstance(e, SpeechAudio)]
    tokens = golden.array(version, "frontend", "vc.source_speech_token")[0].tolist()
    stream = await stages.acoustic.open(prompt, AcousticSettings())
    whole = (await stream.speak(tokens, final=True)).samples
    stream.close()
    assert sum(map(len, pieces)) == len(whole) == 960 * len(tokens)
    assert np.array_equal(np.concatenate(pieces), whole)
    await stages.acoustic.close()
    await stages.lm.close()


async def test_what_cannot_be_is_refused_by_name(tmp_path: Path) -> None:
    engine = CosyVoiceEngine.load(golden.model_dir(3), NoWatermark())
    heard = source()
    for wrong, field in (
        ({"instruct": "Softly."}, "instruct"),
        ({"language": "en"}, "language"),
        ({"source": DecodedAudio(heard.samples, 8_000)}, "audio"),
        ({"source": DecodedAudio(heard.samples[:1600], 16_000)}, "audio"),
        ({"source": DecodedAudio(np.zeros(16_000 * 301, np.float32), 16_000)}, "audio"),
    ):
        with pytest.raises(InvalidRequest) as refused:
            await engine.open_session(
                replace(SpeechRequest("tiny_speaker", source=heard), **wrong)  # type: ignore[arg-type]
            )
        assert refused.value.field == field, wrong
    session = await engine.open_session(SpeechRequest("tiny_speaker", source=heard))
    with pytest.raises(InvalidRequest) as refused:
        await session.push_text("Hello.")
    assert refused.value.field == "text"
    await session.cancel()
    await engine.close()

    shutil.copytree(golden.model_dir(3), tmp_path / "deaf")
    (tmp_path / "deaf").chmod(0o755)
    (tmp_path / "deaf" / "speech_tokenizer_v3.onnx").unlink()
    deaf = CosyVoiceEngine.load(tmp_path / "deaf", NoWatermark())
    assert Mode.VOICE_CONVERSION not in deaf.capabilities.modes
    with pytest.raises(UnsupportedFeature) as unable:
        await deaf.open_session(SpeechRequest("tiny_speaker", source=heard))
    assert unable.value.field == "source"
    await deaf.close()


async def test_a_voice_that_is_withdrawn_ends_the_conversion() -> None:
    opened = open_checkpoint(golden.model_dir(3))
    stages = load_stages(opened, NoWatermark(), max_sessions=1)
    allowed = True

    def require() -> None:
        if not allowed:
            raise ConsentRequired("Withdrawn.", field="consent")

    async def listen(audio: DecodedAudio) -> np.ndarray:
        return np.arange(200)

    voice = SessionVoice(LMPrompt(), recorded(3).acoustic, require)
    hops = SessionSettings(HopSettings(first_hop=8, max_hop=8))
    session = ConversionSession(stages, voice, hops, source(), listen)
    events = session.events()
    assert isinstance(await anext(events), SpeechAudio)
    allowed = False
    with pytest.raises(ConsentRequired):
        await anext(events)
    await stages.acoustic.close()
    await stages.lm.close()


@settings(max_examples=30, deadline=None)
@given(
    seconds=st.floats(0.5, MAX_SOURCE_S),
    rate=st.sampled_from([16_000, 22_050, 44_100, 48_000]),
    pause=st.floats(22.5, 27.5),
)
def test_long_recordings_are_cut_at_pauses(seconds: float, rate: int, pause: float) -> None:
    samples = np.random.default_rng(0).random(round(seconds * rate), np.float32)
    samples[round(pause * rate) - rate // 10 : round(pause * rate) + rate // 10] = 0
    parts = list(windows(DecodedAudio(samples, rate)))
    assert np.array_equal(np.concatenate([part.samples for part in parts]), samples)
    assert all(0.2 * rate < len(part.samples) <= 30 * rate for part in parts)
    assert all(len(part.samples) % round(0.04 * rate) == 0 for part in parts[:-1])
    if len(parts) > 1:
        assert abs(len(parts[0].samples) / rate - pause) < 0.11


def test_a_long_recording_has_the_tokens_of_its_length() -> None:
    extractor = ReferenceExtractor.of(open_checkpoint(golden.model_dir(2)))
    long = np.tile(source().samples, 30)
    tokens = [extractor.tokens(part) for part in windows(DecodedAudio(long, 16_000))]
    assert sum(map(len, tokens)) == pytest.approx(len(long) / 640, abs=1)
    assert torch.equal(
        torch.from_numpy(tokens[0]),
        torch.from_numpy(extractor.tokens(next(windows(DecodedAudio(long, 16_000))))),
    )
