"""Speech tokens, prompt mel and speaker embedding of a recording, for all generations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from antiphon.engine.audio_file import DecodedAudio, decode_audio
from antiphon.engine.checkpoint.config import ModelGeneration
from antiphon.engine.errors import CheckpointError, InvalidRequest
from antiphon.engine.voice.reference import ReferenceExtractor, SpeakerEncoder, SpeechTokenizer
from tests import golden
from tests.engine.voice.test_features import MEL_V1, MEL_V2, MEL_V3

MELS = {1: MEL_V1, 2: MEL_V2, 3: MEL_V3}


def extractor(version: int, *, compat: bool = False) -> ReferenceExtractor:
    folder = golden.model_dir(version)
    return ReferenceExtractor(
        ModelGeneration(version),
        MELS[version],
        folder / f"speech_tokenizer_v{version}.onnx",
        folder / "campplus.onnx",
        compat=compat,
    )


def prompt() -> DecodedAudio:
    return decode_audio(golden.golden_path("audio/prompt_24k.wav"))


@pytest.mark.parametrize("version", [1, 2, 3])
def test_prompt_is_the_reference_one(version: int) -> None:
    listener = extractor(version, compat=True)
    whole = listener.extract(prompt())
    cut = listener.prompt(prompt())

    def check(name: str, actual: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> None:
        golden.assert_close(torch.from_numpy(actual)[None], version, "frontend", name)

    check("speech_token", whole.tokens)
    check("mel", whole.mel)
    check("embedding", whole.embedding)
    check("zero_shot.speech_token", cut.tokens)
    check("zero_shot.prompt_speech_feat", cut.mel)
    check("vc.flow_prompt_speech_token", whole.tokens)
    source = decode_audio(golden.golden_path("audio/source_16k.wav"))
    check("vc.source_speech_token", listener.tokens(source))


def test_prompt_mel_of_version_1_has_the_right_pitch_unless_upstreams_is_asked_for() -> None:
    mel = extractor(1).prompt(prompt()).mel
    golden.assert_close(torch.from_numpy(mel)[None], 1, "frontend", "mel_at_22050")


def test_fingerprints_tell_models_apart() -> None:
    prints = {extractor(version).fingerprint for version in (1, 2, 3)}
    assert len(prints) == 3
    assert extractor(2).fingerprint in prints


@pytest.mark.parametrize(
    ("seconds", "rate", "match"),
    [(31.0, 16000, "at most 30 s"), (5.0, 8000, "at least 16000"), (0.1, 16000, "too short")],
)
def test_recordings_out_of_bounds_are_refused(seconds: float, rate: int, match: str) -> None:
    audio = DecodedAudio(np.zeros(int(seconds * rate), np.float32), rate)
    with pytest.raises(InvalidRequest, match=match):
        extractor(2).prompt(audio)


def test_networks_with_another_signature_are_named(tmp_path: Path) -> None:
    folder = golden.model_dir(2)
    with pytest.raises(CheckpointError, match="signature") as caught:
        SpeechTokenizer(folder / "campplus.onnx")
    assert caught.value.field == "campplus.onnx"
    with pytest.raises(CheckpointError, match="signature"):
        SpeakerEncoder(folder / "speech_tokenizer_v2.onnx")
    with pytest.raises(CheckpointError, match="missing"):
        SpeakerEncoder(tmp_path / "campplus.onnx")
    whole = (folder / "campplus.onnx").read_bytes()
    for content in (b"", b"not a network", whole[: len(whole) // 2]):
        damaged = tmp_path / "damaged.onnx"
        damaged.write_bytes(content)
        with pytest.raises(CheckpointError) as caught:
            SpeakerEncoder(damaged)
        assert caught.value.field == "damaged.onnx"
