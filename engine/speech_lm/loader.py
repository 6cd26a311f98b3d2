"""The speech LM of a checkpoint on the backend that a deployment chose."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from antiphon.engine.checkpoint import Checkpoint
from antiphon.engine.checkpoint.config import ModelGeneration
from antiphon.engine.errors import InvalidConfiguration
from antiphon.engine.speech_lm.memory import torch_positions
from antiphon.engine.speech_lm.request import SpeechLM
from antiphon.engine.speech_lm.settings import VLLM_KV_GIB, LMSettings
from antiphon.engine.speech_lm.text_speech_backend import TorchTextSpeechLM
from antiphon.engine.speech_lm.torch_backend import TorchSpeechLM
from antiphon.engine.speech_lm.vllm_backend import VLLMSpeechLM
from antiphon.engine.speech_lm.vllm_settings import MAX_POSITIONS, Device, VLLMSettings


def load_speech_lm(
    checkpoint: Checkpoint,
    settings: LMSettings,
    *,
    max_sessions: int,
    device: torch.device | str = "cpu",
) -> SpeechLM:
    """Load a speech LM that decodes `max_sessions` requests together.

    Raises:
        CheckpointError: weights that do not fit the configuration.
        InvalidConfiguration: vLLM is not installed or of a version that is not supported, does not
            know the checkpoint's generation, or the budget for keys and values is too small.
    """
    if settings.backend == "vllm":
        return _on_vllm(checkpoint, settings, max_sessions, device)
    if checkpoint.generation is ModelGeneration.V1:
        return TorchTextSpeechLM.load(
            checkpoint, slots=max_sessions, max_waiting=max_sessions, device=device
        )
    return TorchSpeechLM.load(
        checkpoint,
        slots=max_sessions,
        positions=torch_positions(checkpoint.lm_config, settings, max_sessions),
        max_waiting=max_sessions,
        device=str(device),
    )


def _on_vllm(
    checkpoint: Checkpoint,
    settings: LMSettings,
    max_sessions: int,
    device: torch.device | str,
) -> VLLMSpeechLM:
    if checkpoint.generation is ModelGeneration.V1:
        raise InvalidConfiguration(
            "CosyVoice 1 runs on the torch backend alone: its speech LM is not a Qwen2.",
            field="lm.backend",
            limit="torch",
        )
    if torch.cuda.is_available() and torch.device(device).type != "cuda":
        raise InvalidConfiguration(
            "vLLM takes the GPU where there is one; set `device: auto`, or `lm.backend: torch`.",
            field="device",
        )
    smallest = Device.here().smallest_block
    if settings.block_size is not None and settings.block_size % smallest:
        raise InvalidConfiguration(
            f"Here lm.block_size must be a multiple of {smallest}.",
            field="lm.block_size",
            limit=smallest,
        )
    return VLLMSpeechLM.prepare(
        checkpoint,
        VLLMSettings(
            cache=settings.cache_dir or default_cache(),
            kv_gib=VLLM_KV_GIB if settings.kv_gib is None else settings.kv_gib,
            max_sequences=max_sessions,
            max_positions=min(MAX_POSITIONS, checkpoint.lm_config.backbone.max_position_embeddings),
            block_size=settings.block_size,
        ),
    )


def default_cache() -> Path:
    """Return the user's folder for exported models."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "antiphon" / "vllm"
