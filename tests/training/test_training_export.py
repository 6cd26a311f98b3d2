"""A run's export is a checkpoint that the engine opens and speaks with."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from antiphon.engine.checkpoint import open_checkpoint
from antiphon.engine.checkpoint.weights import load_module
from antiphon.engine.flow.flow import Flow
from antiphon.engine.flow.flow_matching import plan_solver
from antiphon.engine.speech_lm.qwen2 import Qwen2SpeechLM
from antiphon.engine.vocoder.hift import HiFT
from antiphon.training import sizes
from antiphon.training.card import card
from antiphon.training.data.corpus import Corpus
from antiphon.training.data.features import Mels
from antiphon.training.data.speakers import HOUSE
from antiphon.training.data.split import Split
from antiphon.training.export import Trained, export, origin
from antiphon.training.recipe import Recipe
from antiphon.training.stages.f0 import F0Stage
from antiphon.training.stages.flow import FlowPlan, FlowStage
from antiphon.training.stages.qwen2 import TrainableSpeechLM
from antiphon.training.stages.tokenizer import Recogniser, features
from antiphon.training.stages.vocoder import new_vocoder
from antiphon.training.stages.xvector import SpeakerStage, filterbank
from antiphon.training.text_ids import encode


@pytest.fixture(scope="module")
def exported(
    corpus: Corpus,
    mels: Mels,
    parts: Split,
    embeddings: np.ndarray,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, Trained]:
    torch.manual_seed(0)
    trained = Trained(
        lm=TrainableSpeechLM(sizes.LM).state_dict(),
        flow=FlowStage(sizes.FLOW, FlowPlan(), corpus, mels, embeddings, parts).model.state_dict(),
        vocoder=new_vocoder(sizes.HIFT, 1).state_dict(),
        f0=F0Stage(sizes.HIFT, corpus, mels, parts).model.state_dict(),
        tokenizer=Recogniser().state_dict(),
        xvector=SpeakerStage(corpus, parts).model.state_dict(),
    )
    folder = tmp_path_factory.mktemp("export") / "nano"
    export(folder, trained, corpus, mels, embeddings, origin(Recipe(), corpus))
    return folder, trained


def test_the_engine_reads_back_every_size(exported: tuple[Path, Trained]) -> None:
    checkpoint = open_checkpoint(exported[0])
    assert checkpoint.missing_files() == []
    assert checkpoint.unknown_keys == ()
    assert checkpoint.lm_config == sizes.LM
    assert checkpoint.flow_config == sizes.FLOW
    assert checkpoint.hift_config == sizes.HIFT
    text = " [HH][AH0][L][OW1], [W][ER1][L][D]."
    assert checkpoint.tokenizer.encode(text) == encode(text)


def test_weights_load_strictly_and_unchanged(exported: tuple[Path, Trained]) -> None:
    folder, trained = exported
    checkpoint = open_checkpoint(folder)
    Qwen2SpeechLM(checkpoint.lm_config, checkpoint.lm_state_dict(), positions=16)
    flow = Flow(checkpoint.flow_config)
    load_module(flow, checkpoint.flow_state_dict(), "flow.pt")
    for name, value in flow.state_dict().items():
        torch.testing.assert_close(value, trained.flow[name], atol=1e-2, rtol=1e-2)
    hift = HiFT(checkpoint.hift_config)
    load_module(hift, checkpoint.hift_state_dict(), "hift.pt")
    hift.prepare_for_serving()
    for name, value in trained.vocoder.items():
        if not name.startswith("f0_predictor."):
            torch.testing.assert_close(hift.state_dict()[name], value, atol=1e-6, rtol=1e-5)
    for name, value in trained.f0.items():
        served = hift.f0_predictor.state_dict()[name].float()
        torch.testing.assert_close(served, value, atol=1e-6, rtol=1e-5)


def test_house_voices_have_flow_prompts_of_78_tokens(exported: tuple[Path, Trained]) -> None:
    voices = open_checkpoint(exported[0]).voices
    assert set(voices) == set(HOUSE)
    for voice in voices.values():
        assert voice.acoustic.tokens.shape == (78,)
        assert voice.acoustic.mel.shape == (156, 80)
        assert len(voice.lm.speech_ids) >= 78
        assert voice.lm.text_ids


def test_a_voice_speaks_through_flow_and_vocoder(exported: tuple[Path, Trained]) -> None:
    checkpoint = open_checkpoint(exported[0])
    flow = Flow(checkpoint.flow_config).eval()
    load_module(flow, checkpoint.flow_state_dict(), "flow.pt")
    hift = HiFT(checkpoint.hift_config)
    load_module(hift, checkpoint.hift_state_dict(), "hift.pt")
    hift.prepare_for_serving()
    voice = checkpoint.voices["hazel"].acoustic
    mel = flow.solve_whole(
        torch.arange(20)[None],
        torch.from_numpy(voice.tokens)[None],
        torch.from_numpy(voice.mel)[None],
        torch.from_numpy(voice.embedding)[None],
        plan_solver("euler", 2, 0.7),
    )
    with torch.no_grad():
        samples, _ = hift(mel, torch.rand(1, 480 * 40, 9))
    assert samples.shape == (1, 480 * 40)
    assert bool(torch.isfinite(samples).all())


def test_onnx_parts_equal_their_networks(
    exported: tuple[Path, Trained], corpus: Corpus, parts: Split
) -> None:
    folder, trained = exported
    samples = corpus.samples(1)
    recogniser = Recogniser().eval()
    recogniser.load_state_dict(trained.tokenizer)
    feats = features(samples)[None]
    session = onnxruntime.InferenceSession(folder / "speech_tokenizer_v3.onnx")
    length = np.array([feats.shape[2]], np.int32)
    (codes,) = session.run(None, {"feats": feats.numpy(), "feats_length": length})
    with torch.no_grad():
        logits = recogniser(feats)[0]
    phone = logits[:, :40].argmax(-1)
    start = torch.cat([torch.ones(1, dtype=torch.bool), phone[1:] != phone[:-1]])
    expected = phone + 40 * logits[:, 40:].argmax(-1) + 120 * start
    np.testing.assert_array_equal(codes[0], expected.numpy())
    assert codes.shape[1] == -(-feats.shape[2] // 4)

    stage = SpeakerStage(corpus, parts)
    stage.model.load_state_dict(trained.xvector)
    encoder = stage.model.get_submodule("encoder").eval()
    bank = filterbank(samples)[None]
    session = onnxruntime.InferenceSession(folder / "campplus.onnx")
    (embedded,) = session.run(None, {"input": bank.numpy()})
    with torch.no_grad():
        np.testing.assert_allclose(embedded, encoder(bank).numpy(), atol=1e-5)


def test_the_origin_is_written_down(exported: tuple[Path, Trained], corpus: Corpus) -> None:
    folder, _ = exported
    stated = json.loads((folder / "origin.json").read_text())
    assert stated == origin(Recipe(), corpus)
    assert len(stated["recipe_sha256"]) == len(stated["data_sha256"]) == 64
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert size < 35 << 20


def test_a_student_runs_without_guidance(
    exported: tuple[Path, Trained],
    corpus: Corpus,
    mels: Mels,
    embeddings: np.ndarray,
    tmp_path: Path,
) -> None:
    export(tmp_path, exported[1], corpus, mels, embeddings, origin(Recipe(), corpus), student=True)
    assert open_checkpoint(tmp_path).flow_config.decoder.inference_cfg_rate == 0.0


def test_the_card_shows_what_was_measured(tmp_path: Path) -> None:
    figures = tmp_path / "voice.json"
    rows = [{"link": "teacher", "WER %": 1.0, "RTF": None}]
    figures.write_text(json.dumps({"title": "Voice gate: nano", "rows": rows}))
    text = card({"git_commit": "abc"}, figures)
    assert "| teacher | 1 | – |" in text
    assert "`abc`" in text
    assert all(name in text for name in HOUSE)
    assert "Not measured yet" in card({}, None)
