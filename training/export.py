"""Trained stages to a model directory in the official layout, with its origin written into it."""

import hashlib
import json
import os
import subprocess
import wave
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.utils import parametrizations

from antiphon.engine.checkpoint.config import FlowConfig
from antiphon.engine.vocoder.hift import HiFT
from antiphon.engine.vocoder.layers import fold_weight_norm
from antiphon.training import sizes
from antiphon.training.card import card
from antiphon.training.checkpoint_files import model_yaml, write_tokenizer_folder
from antiphon.training.data.corpus import Corpus
from antiphon.training.data.features import Mels
from antiphon.training.data.hibari import Array
from antiphon.training.data.speakers import HOUSE
from antiphon.training.data.split import HELD_OUT_SPEAKERS
from antiphon.training.onnx_parts import write_speaker_encoder, write_tokenizer
from antiphon.training.stages.flow import PROMPT_TOKENS
from antiphon.training.stages.tokenizer import Recogniser
from antiphon.training.stages.xvector import SpeakerEncoder
from antiphon.training.text_ids import END_OF_PROMPT_ID, encode

MAX_BYTES: Final = 35 << 20


@dataclass(frozen=True)
class Trained:
    """State dicts of all stages (averaged weights of their best evaluation)."""

    lm: Mapping[str, Tensor]
    flow: Mapping[str, Tensor]
    vocoder: Mapping[str, Tensor]
    f0: Mapping[str, Tensor]
    tokenizer: Mapping[str, Tensor]
    xvector: Mapping[str, Tensor]


def origin(recipe: object, corpus: Corpus, codes: Corpus | None = None) -> dict[str, str]:
    """What the checkpoint was made from: recipe, data list and git commit, hashed.

    `codes` is the corpus without sound, if the LM learned from one.
    """
    rows = [*corpus.rows, *(codes.rows if codes else ())]
    data = json.dumps([[row["speaker"], row["text"], row["tokens"]] for row in rows])
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"],
        cwd=Path(__file__).resolve().parent,
        capture_output=True,
        text=True,
        check=False,
    ).stdout.strip()
    return {
        "recipe_sha256": hashlib.sha256(repr(recipe).encode()).hexdigest(),
        "data_sha256": hashlib.sha256(data.encode()).hexdigest(),
        "utterances": str(len(corpus)),
        "utterances_without_sound": str(len(codes) if codes else 0),
        "git_commit": commit or "unknown",
        "license": "Apache-2.0",
    }


def export(
    folder: Path,
    trained: Trained,
    corpus: Corpus,
    mels: Mels,
    embeddings: Array,
    metadata: dict[str, str],
    *,
    student: bool = False,
    figures: Path | None = None,
) -> None:
    """Write every file of the layout. A student's flow is marked as running without guidance.

    `figures` is the gate's JSON, to be shown in the directory's README.

    Raises:
        ValueError: the directory came out larger than 35 MB.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cosyvoice3.yaml").write_text(
        model_yaml(sizes.LM, _flow_config(student), sizes.HIFT), encoding="utf-8"
    )
    write_tokenizer_folder(folder / "CosyVoice-BlankEN", sizes.LM)
    backbone = "llm.model."
    lm = {name: value.half() for name, value in trained.lm.items()}
    lm["llm.model.lm_head.weight"] = lm["llm.model.model.embed_tokens.weight"].clone()
    _save(lm, folder / "llm.pt")
    shared = {
        name.removeprefix(backbone): value.contiguous()
        for name, value in lm.items()
        if name.startswith(backbone + "model.")
    }
    save_file(shared, folder / "CosyVoice-BlankEN" / "model.safetensors", metadata)
    _save({name: value.half() for name, value in trained.flow.items()}, folder / "flow.pt")
    _save(_split_vocoder(trained.vocoder, trained.f0), folder / "hift.pt")
    recogniser = _loaded(Recogniser(), trained.tokenizer)
    write_tokenizer(recogniser, folder / "speech_tokenizer_v3.onnx", metadata)
    encoder = _loaded(SpeakerEncoder(), _under(trained.xvector, "encoder."))
    write_speaker_encoder(encoder, folder / "campplus.onnx", metadata)
    chosen = {name: prompt_utterance(corpus, name) for name in HOUSE}
    voices = {name: stored_voice(corpus, mels, embeddings, i) for name, i in chosen.items()}
    _save(voices, folder / "spk2info.pt")
    _write_prompts(folder / "prompts", corpus)
    (folder / "README.md").write_text(card(metadata, figures), encoding="utf-8")
    (folder / "origin.json").write_text(json.dumps(metadata, indent=1) + "\n", encoding="utf-8")
    total = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if total > MAX_BYTES:
        raise ValueError(f"The checkpoint has {total} bytes; {MAX_BYTES} are allowed.")


def _flow_config(student: bool) -> FlowConfig:
    if not student:
        return sizes.FLOW
    return replace(sizes.FLOW, decoder=replace(sizes.FLOW.decoder, inference_cfg_rate=0.0))


def prompt_utterance(corpus: Corpus, speaker: str) -> int:
    """The shortest utterance of real words that fills a flow prompt of 78 tokens."""
    fits = [
        (row["tokens"], index)
        for index, row in enumerate(corpus.rows)
        if row["speaker"] == speaker and row["tokens"] >= PROMPT_TOKENS and "[" not in row["spoken"]
    ]
    return min(fits)[1]


def stored_voice(corpus: Corpus, mels: Mels, embeddings: Array, index: int) -> dict[str, Tensor]:
    """One entry of `spk2info.pt`: the whole utterance for the LM, 78 tokens of it for the flow."""
    codes = torch.from_numpy(corpus.codes(index)).int()[None]
    text = torch.tensor(
        [[END_OF_PROMPT_ID, *encode(corpus.rows[index]["text"])]], dtype=torch.int32
    )
    first = codes.shape[1] - PROMPT_TOKENS
    mel = torch.from_numpy(mels.get(index, first))[None]
    peers = [i for i, r in enumerate(corpus.rows) if r["speaker"] == corpus.rows[index]["speaker"]]
    embedding = torch.from_numpy(embeddings[peers].mean(0))[None]

    def length(value: Tensor) -> Tensor:
        return torch.tensor([value.shape[1]], dtype=torch.int32)

    return {
        "prompt_text": text,
        "prompt_text_len": length(text),
        "llm_prompt_speech_token": codes,
        "llm_prompt_speech_token_len": length(codes),
        "flow_prompt_speech_token": codes[:, first:],
        "flow_prompt_speech_token_len": torch.tensor([PROMPT_TOKENS], dtype=torch.int32),
        "prompt_speech_feat": mel,
        "prompt_speech_feat_len": length(mel),
        "llm_embedding": embedding,
        "flow_embedding": embedding,
        "embedding": embedding,
    }


def _split_vocoder(vocoder: Mapping[str, Tensor], f0: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Plain weights back to the published split form (direction and magnitude)."""
    model = HiFT(sizes.HIFT)
    fold_weight_norm(model)
    merged = {k: v for k, v in vocoder.items() if not k.startswith("f0_predictor.")}
    merged |= {f"f0_predictor.{name}": value for name, value in f0.items()}
    model.load_state_dict(merged)
    published = {
        name.partition(".parametrizations")[0]
        for name in HiFT(sizes.HIFT).state_dict()
        if ".parametrizations" in name
    }
    for name in sorted(published):
        parametrizations.weight_norm(model.get_submodule(name))
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def _write_prompts(folder: Path, corpus: Corpus) -> None:
    """Four recordings to try cloning with: two trained voices, two held-out ones."""
    folder.mkdir(exist_ok=True)
    present = {row["speaker"] for row in corpus.rows}
    unseen = [name for name in HELD_OUT_SPEAKERS if name in present][:2]
    listed: dict[str, Any] = {}
    for speaker in ("hazel", "sam", *unseen):
        index = prompt_utterance(corpus, speaker)
        row = corpus.rows[index]
        name = f"{speaker}.wav"
        pcm = (np.clip(corpus.samples(index), -1, 1) * 32767).astype("<i2")
        with wave.open(str(folder / name), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(24000)
            file.writeframes(pcm.tobytes())
        listed[name] = {
            "text": row["spoken"],
            "phonemes": row["text"],
            "seconds": round(row["tokens"] / 25, 2),
            "speaker_in_training": speaker not in HELD_OUT_SPEAKERS,
        }
    (folder / "prompts.json").write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")


def _under(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}


def _loaded(model: Any, state: Mapping[str, Tensor]) -> Any:
    model.load_state_dict(state)
    return model.eval()


def _save(value: object, path: Path) -> None:
    temporary = path.with_suffix(".part")
    torch.save(value, temporary)
    os.replace(temporary, path)
