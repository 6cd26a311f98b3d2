"""The exported directory, read back with our own network. Needs no vLLM."""

from __future__ import annotations

import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from antiphon.engine.checkpoint import open_checkpoint
from antiphon.engine.checkpoint.config import LMConfig
from antiphon.engine.speech_lm import vllm_settings
from antiphon.engine.speech_lm.batch_plan import Row
from antiphon.engine.speech_lm.head_padding import HEAD_SIZES, Padding
from antiphon.engine.speech_lm.qwen2 import KVCache, Qwen2SpeechLM
from antiphon.engine.speech_lm.vllm_export import PROBE_FILE, export, export_directory
from tests.engine.speech_lm.cases import checkpoint


def official_names(tensors: dict[str, Tensor], config: LMConfig) -> dict[str, Tensor]:
    """Undo the unified vocabulary and the names, not the padding."""
    rows, texts = config.ids.rows, config.backbone.vocab_size
    table = tensors["model.embed_tokens.weight"]
    state = {
        f"llm.model.{key}": value
        for key, value in tensors.items()
        if key.startswith("model.") and "embed_tokens" not in key
    }
    state["speech_embedding.weight"] = table[:rows]
    state["llm.model.model.embed_tokens.weight"] = table[rows : rows + texts]
    if len(table) > rows + texts:
        state["llm_embedding.weight"] = table[rows + texts :]
    for key in ("weight", "bias"):
        if f"lm_head.{key}" in tensors:
            state[f"llm_decoder.{key}"] = tensors[f"lm_head.{key}"]
    return state


@pytest.mark.parametrize("version", [3, 2])
def test_padded_heads_compute_the_same(version: int, tmp_path: Path) -> None:
    """Tiny heads have 12 channels, the kernels at least 32: three numbers are corrected."""
    opened = checkpoint(version)
    folder = export(opened, torch.float32, tmp_path)
    stated = json.loads((folder / "config.json").read_text())
    config = opened.lm_config
    padded = dataclasses.replace(config, backbone=Padding.of(config.backbone).padded)
    assert padded.backbone.head_dim in HEAD_SIZES
    assert stated["hidden_size"] == padded.backbone.hidden_size
    tensors = load_file(folder / "model.safetensors")
    assert len(tensors["model.embed_tokens.weight"]) == stated["vocab_size"]
    model = Qwen2SpeechLM(padded, official_names(tensors, config), positions=64)
    for entry in json.loads((folder / PROBE_FILE).read_text()):
        cache = KVCache.allocate(padded.backbone, 1, 64, torch.float32, "cpu")
        logp = model.step(cache, [Row(0, 0, entry["ids"])]).log_softmax(-1)[0]
        assert (logp[entry["top"]] - torch.tensor(entry["logp"])).abs().max() < 5e-5


def test_official_head_sizes_stay() -> None:
    backbone = dataclasses.replace(
        checkpoint(3).lm_config.backbone, hidden_size=896, num_attention_heads=14
    )
    padding = Padding.of(backbone)
    assert padding.padded is backbone
    weight = torch.ones(2, 2)
    assert padding.pad("model.layers.0.self_attn.q_proj.weight", weight) is weight


def test_it_is_written_once_and_whole_by_many_at_once(tmp_path: Path) -> None:
    def write(_: int) -> Path:
        return export(open_checkpoint(checkpoint(3).directory), torch.float32, tmp_path / "deep")

    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(write, range(4)))
    assert len(folders) == 1
    assert [path.name for path in (tmp_path / "deep").iterdir()] == [folders.pop().name]


def test_what_was_begun_and_not_finished_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as broken:
        broken.setattr("antiphon.engine.speech_lm.vllm_export.save_file", fail)
        with pytest.raises(OSError, match="disk full"):
            export(checkpoint(3), torch.float32, tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert export(checkpoint(3), torch.float32, tmp_path).is_dir()


def test_the_name_follows_content_and_dtype(tmp_path: Path) -> None:
    names = {
        export_directory(checkpoint(version), dtype, tmp_path)
        for version in (2, 3)
        for dtype in (torch.float32, torch.bfloat16)
    }
    assert len(names) == 4


@pytest.mark.parametrize(
    ("version", "message"), [(None, "not installed"), ("0.30.0", "are supported"), ("1.0", "are")]
)
def test_a_missing_or_unsupported_vllm_is_one_clear_error(
    version: str | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(name: str) -> str:
        if version is None:
            raise vllm_settings.importlib.metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(vllm_settings.importlib.metadata, "version", find)
    with pytest.raises(vllm_settings.InvalidConfiguration, match=message):
        vllm_settings.installed_version()


def test_a_budget_leaves_the_rest_of_a_card_to_others() -> None:
    """Weights of 1.2 GB, 2 GiB of keys and values, 1 GiB for the rest, on a card of 24 GiB."""
    share = vllm_settings.share_of_card(1_200_000_000, 2.0, 24 << 30)
    assert share * 24 == pytest.approx(3 + 1.2e9 / 2**30)
    assert vllm_settings.share_of_card(1_200_000_000, 30.0, 24 << 30) < 1
