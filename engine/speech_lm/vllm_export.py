"""An official `llm.pt` as a vLLM model directory: speech-first vocabulary, safetensors, config.

Made once for each content of the checkpoint and each dtype, under a name that is their hash. A
directory appears whole, by a rename: two servers that start together may both write, one wins, and
both read the same.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_file
from torch import Tensor

from antiphon.engine.checkpoint import Checkpoint
from antiphon.engine.checkpoint.config import LMConfig
from antiphon.engine.speech_lm.batch_plan import Row
from antiphon.engine.speech_lm.head_padding import Padding
from antiphon.engine.speech_lm.layout import Vocabulary
from antiphon.engine.speech_lm.qwen2 import (
    KVCache,
    Qwen2SpeechLM,
    checked_state,
    unified_embedding,
)

ARCHITECTURE: Final = "AntiphonSpeechLM"
FORMAT: Final = "2"
"""Part of the directory's name: raise it when what is written changes."""
PROBE_FILE: Final = "probe.json"
PROBE_PREFIXES: Final = (4, 11, 24)
PROBE_TOP: Final = 10


def fault_id(config: LMConfig) -> int:
    """Return the special id that no sequence samples: by it, numbers not finite are reported."""
    return config.ids.sos if config.ids.sos_and_task_are_speech_rows else config.ids.eos + 1


def export_directory(checkpoint: Checkpoint, dtype: torch.dtype, cache: Path) -> Path:
    """Return where the export of a checkpoint lies; it may not exist yet."""
    name = str(dtype).removeprefix("torch.")
    return cache / f"{checkpoint.lm_fingerprint[:24]}-{name}-{FORMAT}"


def export(checkpoint: Checkpoint, dtype: torch.dtype, cache: Path) -> Path:
    """Return the vLLM model directory of a checkpoint, writing it if it is not there.

    Raises:
        CheckpointError: weights that do not fit the configuration.
        OSError: the cache folder cannot be written.
    """
    target = export_directory(checkpoint, dtype, cache)
    if (target / "config.json").is_file():
        return target
    cache.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=cache))
    try:
        _write(checkpoint, dtype, draft)
        try:
            draft.rename(target)
        except OSError:
            if not (target / "config.json").is_file():
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return target


def _write(checkpoint: Checkpoint, dtype: torch.dtype, folder: Path) -> None:
    config = checkpoint.lm_config
    state = checked_state(config, checkpoint.lm_state_dict())
    save_file(_tensors(config, state, dtype), folder / "model.safetensors", {"format": "pt"})
    (folder / PROBE_FILE).write_text(json.dumps(_probe(config, state)))
    (folder / "config.json").write_text(json.dumps(_config(config, dtype), indent=1))
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())


def _tensors(
    config: LMConfig, state: Mapping[str, Tensor], dtype: torch.dtype
) -> dict[str, Tensor]:
    """Return the weights under the names of the vLLM model, padded where the heads are small."""
    tensors = {
        key.removeprefix("llm.model."): value
        for key, value in state.items()
        if key.startswith("llm.model.model.")
    }
    tensors["model.embed_tokens.weight"] = unified_embedding(config, state)
    tensors["lm_head.weight"] = state["llm_decoder.weight"]
    padding = Padding.of(config.backbone)
    tensors = {key: padding.pad(key, value.float()) for key, value in tensors.items()}
    if config.head_bias:
        tensors["lm_head.bias"] = state["llm_decoder.bias"]
    return {key: value.to(dtype).contiguous() for key, value in tensors.items()}


def _config(config: LMConfig, dtype: torch.dtype) -> dict[str, Any]:
    backbone = Padding.of(config.backbone).padded
    return {
        "architectures": [ARCHITECTURE],
        "model_type": "qwen2",
        "vocab_size": Vocabulary(config).size,
        "hidden_size": backbone.hidden_size,
        "intermediate_size": backbone.intermediate_size,
        "num_hidden_layers": backbone.num_hidden_layers,
        "num_attention_heads": backbone.num_attention_heads,
        "num_key_value_heads": backbone.num_key_value_heads,
        "max_position_embeddings": backbone.max_position_embeddings,
        "rms_norm_eps": backbone.rms_norm_eps,
        "rope_theta": backbone.rope_theta,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "use_sliding_window": False,
        "bos_token_id": None,
        "eos_token_id": None,
        "torch_dtype": str(dtype).removeprefix("torch."),
        # Ours: the head is narrower than the vocabulary.
        "speech_rows": config.ids.rows,
        "speech_head_bias": config.head_bias,
        # What the logits processor must know of the ids.
        "speech_first_stop": config.ids.first_stop,
        "speech_eos": config.ids.eos,
        "speech_fill": config.ids.fill,
        "speech_fault": fault_id(config),
    }


def _probe(config: LMConfig, state: Mapping[str, Tensor]) -> list[dict[str, Any]]:
    """Return reference log-probabilities of the torch backend in float32, teacher forced.

    The probe is a fixed sequence of text and speech ids; after some of its prefixes the most
    likely ids and their log-probabilities are kept.
    """
    vocabulary = Vocabulary(config)
    texts, codes = config.backbone.vocab_size, config.speech_token_size
    longest = max(PROBE_PREFIXES)
    text = [vocabulary.text((i * 7919) % texts) for i in range(longest // 3)]
    speech = [(i * 104729) % codes for i in range(longest)]
    ids = [vocabulary.sos, *text, vocabulary.task, *speech][:longest]
    model = Qwen2SpeechLM(config, state, positions=longest)
    cache = KVCache.allocate(config.backbone, 1, longest, torch.float32, "cpu")
    logp = model.step(cache, [Row(0, 0, ids)], logits_of_all=True).log_softmax(-1)
    found = []
    for prefix in PROBE_PREFIXES:
        top = logp[prefix - 1].topk(min(PROBE_TOP, config.ids.rows))
        found.append(
            {"ids": ids[:prefix], "top": top.indices.tolist(), "logp": top.values.tolist()}
        )
    return found
