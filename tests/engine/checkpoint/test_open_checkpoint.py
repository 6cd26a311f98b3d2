"""Published directories open as they are; broken ones say what is wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from antiphon.engine.checkpoint import Checkpoint, open_checkpoint
from antiphon.engine.checkpoint.config import ModelGeneration, Qwen2Config
from antiphon.engine.checkpoint.document import load_document
from antiphon.engine.checkpoint.reader import read_lm
from antiphon.engine.errors import CheckpointError
from antiphon.engine.speech_lm.qwen2 import UNUSED_KEYS, checked_state, expected_shapes
from tests import golden

NANO = golden.ROOT.parent / "shared" / "nano"


@pytest.mark.parametrize("version", [1, 2, 3])
def test_the_generation_is_recognised(version: int) -> None:
    checkpoint = open_checkpoint(golden.model_dir(version))
    assert checkpoint.generation == version
    assert checkpoint.sample_rate == (22050 if version == 1 else 24000)
    assert checkpoint.token_rate == (50 if version == 1 else 25)
    assert checkpoint.missing_files() == []
    assert checkpoint.unknown_keys == ()


def test_version_three_is_read_in_full() -> None:
    checkpoint = open_checkpoint(golden.model_dir(3))
    ids = golden.notes(3)["lm_ids"]
    lm = checkpoint.lm_config
    assert (lm.ids.sos, lm.ids.eos, lm.ids.task, lm.ids.fill) == (
        ids["sos"], ids["eos"], ids["task_id"], ids["fill"],
    )  # fmt: skip
    assert [lm.ids.first_stop, lm.ids.rows - 1] == ids["stop_token_ids_first_last"]
    assert lm.mix_ratio == (5, 15)
    assert (lm.min_ratio, lm.max_ratio) == (2, 20)
    assert sorted(lm.silent_ids) == golden.notes(3)["silent_token_rule"]["silent_ids"]
    flow = checkpoint.flow_config
    assert flow.estimator.static_chunk_size == 50
    assert flow.decoder.sigma_min == 1e-6
    assert checkpoint.hift_config.samples_per_frame == 480
    assert checkpoint.mel_config.fmax is None
    assert checkpoint.tokenizer.end_of_prompt == ids["endofprompt_text_id"]


@pytest.mark.parametrize("version", [2, 3])
def test_text_ids_equal_the_reference(version: int) -> None:
    tokenizer = open_checkpoint(golden.model_dir(version)).tokenizer
    expected = json.loads(golden.golden_path(f"text/text_v{version}.json").read_text())
    assert tokenizer.size == expected["vocab_len"]
    for token, identifier in expected["added"].items():
        assert tokenizer.token_id(token) == identifier
    for text, ids in expected["special_ids_of"].items():
        assert tokenizer.encode(text) == ids
    for case in expected["cases"]:
        assert tokenizer.encode(case["input"]) == case["ids_of_input"]
        assert [tokenizer.encode(piece) for piece in case["split"]] == case["ids_of_split"]


@pytest.mark.parametrize("version", [2, 3])
def test_ids_of_text_and_instruction_equal_the_reference(version: int) -> None:
    encode = open_checkpoint(golden.model_dir(version)).tokenizer.encode
    system = "You are a helpful assistant. " if version == 3 else ""
    texts = {
        "zero_shot.text": "Hello there, this is a small test of the engine.",
        "instruct2.prompt_text": f"{system}Please read in a happy voice.<|endofprompt|>",
    }
    for name, text in texts.items():
        assert encode(text) == golden.array(version, "frontend", name)[0].tolist(), name


@pytest.mark.skipif(not NANO.exists(), reason="the nano checkpoint lies in ../shared")
def test_nano_opens_with_its_house_voices() -> None:
    checkpoint = open_checkpoint(NANO)
    lm = checkpoint.lm_config
    assert (lm.speech_token_size, lm.mix_ratio, lm.silent_ids) == (240, (8, 12), frozenset())
    assert lm.min_ratio == 1
    assert checkpoint.tokenizer.end_of_prompt == 259
    assert list(checkpoint.voices) == ["hazel", "bruno", "ivy", "sam"]
    hazel = checkpoint.voices["hazel"]
    assert hazel.lm.text_ids[0] == 259
    assert hazel.acoustic.mel.shape == (2 * len(hazel.acoustic.tokens), 80)
    assert hazel.acoustic.embedding.shape == (192,)
    again = open_checkpoint(NANO).voices["hazel"].acoustic.key
    assert again == hazel.acoustic.key != checkpoint.voices["sam"].acoustic.key


def test_a_voice_of_an_embedding_alone_has_empty_prompts() -> None:
    voice = open_checkpoint(golden.model_dir(3)).voices["tiny_speaker"]
    assert voice.lm.text_ids == voice.lm.speech_ids == ()
    assert voice.acoustic.mel.shape == (0, 80)
    assert np.isfinite(voice.lm_embedding).all()


@pytest.mark.parametrize("version", [2, 3])
def test_full_size_keys_equal_the_manifest(version: int) -> None:
    """The published sizes, from shapes alone: nothing of that size is allocated."""
    manifest = json.loads(golden.golden_path(f"manifest/cosyvoice{version}.json").read_text())
    full = manifest["qwen2_config"]
    backbone = Qwen2Config(
        *(full[k] for k in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
          "num_attention_heads", "num_key_value_heads", "max_position_embeddings",
          "rms_norm_eps", "rope_theta"))
    )  # fmt: skip
    path = golden.model_dir(version) / f"cosyvoice{version}.yaml"
    document = load_document(path)
    document.root["llm"].arguments.update(
        llm_input_size=backbone.hidden_size, llm_output_size=backbone.hidden_size
    )
    config = read_lm(document, backbone)
    keys = manifest["modules"]["llm"]["keys"]
    state = {key: torch.empty(entry["shape"], device="meta") for key, entry in keys.items()}
    assert set(checked_state(config, state)) == set(keys) - UNUSED_KEYS
    assert set(expected_shapes(config)) == set(keys) - UNUSED_KEYS


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    target = tmp_path / "tiny-cosyvoice3"
    shutil.copytree(golden.model_dir(3), target)
    for path in [target, *target.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return target


def replaced(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


Break = Callable[[Path], object]
Use = Callable[[Checkpoint], object]
YAML, BACKBONE = "cosyvoice3.yaml", "CosyVoice-BlankEN"


@pytest.mark.parametrize(
    ("spoil", "use", "names"),
    [
        (lambda d: replaced(d / YAML, "CosyVoice3LM", "Evil"), lambda c: c, "llm.class"),
        (lambda d: replaced(d / YAML, "mix_ratio: [5, 15]", "mix_ratio: [5]"),
         lambda c: c.lm_config, "llm.mix_ratio"),
        (lambda d: replaced(d / YAML, "top_k: 25", "top_k: 25\n        beams: 4"),
         lambda c: c.lm_config, "llm.sampling.beams"),
        (lambda d: replaced(d / YAML, "depth: 2", "depth: 99999"),
         lambda c: c.flow_config, "flow.decoder.estimator.depth"),
        (lambda d: replaced(d / YAML, "lrelu_slope: 0.1", "slope: 0.1"),
         lambda c: c.hift_config, "hift.lrelu_slope"),
        (lambda d: (d / "flow.pt").unlink(), lambda c: c.flow_state_dict(), "flow.pt"),
        (lambda d: (d / "flow.pt").write_bytes((d / "flow.pt").read_bytes()[:5000]),
         lambda c: c.flow_state_dict(), "flow.pt"),
        (lambda d: (d / "llm.pt").write_bytes(b""), lambda c: c.lm_state_dict(), "llm.pt"),
        (lambda d: (d / BACKBONE / "merges.txt").unlink(), lambda c: c.tokenizer, "merges.txt"),
        (lambda d: (d / BACKBONE / "vocab.json").write_text("{"),
         lambda c: c.tokenizer, "merges.txt"),
        (lambda d: replaced(d / BACKBONE / "tokenizer_config.json", '"546"', '"700"'),
         lambda c: c.tokenizer, "added_tokens_decoder"),
        (lambda d: replaced(d / BACKBONE / "config.json", '"silu"', '"gelu"'),
         lambda c: c.lm_config, "hidden_act"),
        (lambda d: (d / BACKBONE / "config.json").write_text("[]"),
         lambda c: c.lm_config, "model_type"),
        (lambda d: torch.save([1], d / "spk2info.pt"), lambda c: c.voices, "spk2info.pt"),
        (lambda d: torch.save({"x": {"embedding": torch.full((1, 192), torch.nan)}},
                              d / "spk2info.pt"), lambda c: c.voices, "x.embedding"),
        (lambda d: torch.save({"x": {"embedding": torch.zeros(1, 192), "prompt_text":
                               torch.tensor([[99999]])}}, d / "spk2info.pt"),
         lambda c: c.voices, "x.prompt_text"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(copied: Path, spoil: Break, use: Use, names: str) -> None:
    spoil(copied)
    with pytest.raises(CheckpointError) as refused:
        use(open_checkpoint(copied))
    assert str(refused.value.field).endswith(names)


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(CheckpointError):
            open_checkpoint(path)


def test_the_fingerprint_follows_the_content(copied: Path) -> None:
    original = open_checkpoint(golden.model_dir(3))
    same = open_checkpoint(copied)
    assert same.fingerprint == original.fingerprint
    assert same.lm_fingerprint == original.lm_fingerprint
    state = same.flow_state_dict()
    next(iter(state.values())).add_(1)
    torch.save(state, copied / "changed.pt")
    (copied / "changed.pt").replace(copied / "flow.pt")
    changed = open_checkpoint(copied)
    assert changed.fingerprint != original.fingerprint
    assert changed.lm_fingerprint == original.lm_fingerprint


def test_generation_numbers_are_the_published_ones() -> None:
    assert [int(generation) for generation in ModelGeneration] == [1, 2, 3]
