"""`spk2info.pt`: the voices that a checkpoint brings along."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from antiphon.engine.checkpoint.weights import load_tensors
from antiphon.engine.errors import CheckpointError
from antiphon.engine.voice.voice import AcousticPrompt, LMPrompt


@dataclass(frozen=True, slots=True, eq=False)
class StoredVoice:
    """One entry of `spk2info.pt`."""

    name: str
    lm: LMPrompt
    """Empty for a voice that is an embedding alone (SFT)."""
    acoustic: AcousticPrompt
    lm_embedding: NDArray[np.float32]
    """(192,) speaker embedding for the LM of version 1; later ones ignore it."""


def acoustic_prompt(
    tokens: NDArray[np.int64], mel: NDArray[np.float32], embedding: NDArray[np.float32]
) -> AcousticPrompt:
    """Build a prompt whose key is the hash of its content."""
    digest = hashlib.sha256()
    for array in (tokens, mel, embedding):
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return AcousticPrompt(digest.hexdigest(), tokens, mel, embedding)


def load_voices(
    path: Path, *, speech_codes: int, text_tokens: int, mel_bins: int, frames_per_token: int
) -> dict[str, StoredVoice]:
    """Load the stored voices; an absent file means that there are none.

    `frames_per_token` is 0 where mel and tokens have no common grid (version 1).

    Raises:
        CheckpointError: an entry without embedding, with ids out of range, of a wrong shape or with
            values that are not finite; `field` names it.
    """
    if not path.is_file():
        return {}
    loaded = load_tensors(path)
    if not isinstance(loaded, Mapping):
        raise CheckpointError(f"{path.name} holds no voices by name.", field=path.name)
    voices = {}
    for name, entry in loaded.items():
        if not isinstance(name, str) or not isinstance(entry, Mapping):
            raise CheckpointError(f"{path.name}: {name!r} is no voice.", field=str(name))
        reader = _Entry(f"{path.name}: {name}", entry)
        voices[name] = reader.voice(name, speech_codes, text_tokens, mel_bins, frames_per_token)
    return voices


class _Entry:
    def __init__(self, label: str, values: Mapping[Any, Any]) -> None:
        self._label = label
        self._values = values

    def _fail(self, key: str, message: str) -> CheckpointError:
        return CheckpointError(f"{self._label}.{key} {message}.", field=f"{self._label}.{key}")

    def voice(self, name: str, codes: int, texts: int, mel_bins: int, ratio: int) -> StoredVoice:
        tokens = self._ids("flow_prompt_speech_token", codes)
        mel = self._floats("prompt_speech_feat", mel_bins)
        # The published front end trims both to whole tokens; a stored voice may be older.
        if ratio:
            count = min(len(tokens), len(mel) // ratio)
            tokens, mel = tokens[:count], mel[: count * ratio]
        acoustic = acoustic_prompt(tokens, mel, self._embedding("flow_embedding"))
        lm = LMPrompt(
            tuple(self._ids("prompt_text", texts).tolist()),
            tuple(self._ids("llm_prompt_speech_token", codes).tolist()),
        )
        return StoredVoice(name, lm, acoustic, self._embedding("llm_embedding"))

    def _tensor(self, key: str) -> Tensor | None:
        value = self._values.get(key)
        if value is not None and (not isinstance(value, Tensor) or value.dim() not in (1, 2, 3)):
            raise self._fail(key, "is no tensor of one to three dimensions")
        return value

    def _ids(self, key: str, limit: int) -> NDArray[np.int64]:
        value = self._tensor(key)
        if value is None:
            return np.zeros(0, np.int64)
        if value.is_floating_point() or value.is_complex() or value.numel() > 1 << 16:
            raise self._fail(key, "must be whole numbers")
        ids: NDArray[np.int64] = value.reshape(-1).to(torch.int64).numpy()
        if len(ids) and (ids.min() < 0 or ids.max() >= limit):
            raise self._fail(key, f"has ids outside 0 to {limit - 1}")
        return ids

    def _floats(self, key: str, channels: int) -> NDArray[np.float32]:
        value = self._tensor(key)
        if value is None:
            return np.zeros((0, channels), np.float32)
        if value.shape[-1] != channels or not value.is_floating_point():
            raise self._fail(key, f"must have {channels} channels, not shape {tuple(value.shape)}")
        if not bool(torch.isfinite(value).all()):
            raise self._fail(key, "has values that are not finite")
        result: NDArray[np.float32] = value.reshape(-1, channels).to(torch.float32).numpy()
        return result

    def _embedding(self, key: str) -> NDArray[np.float32]:
        chosen = key if key in self._values else "embedding"
        if chosen not in self._values:
            raise self._fail(chosen, "is missing")
        rows = self._floats(chosen, 192)
        if len(rows) != 1:
            raise self._fail(chosen, "must be one vector of 192")
        vector: NDArray[np.float32] = rows[0]
        return vector
