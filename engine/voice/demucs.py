"""Clean-up by Demucs (arXiv 2211.08553), which also takes out music and other sounds that are no
noise. The optional package `demucs`; its weights are a safetensors file of the operator's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from antiphon.engine.audio_file import DecodedAudio
from antiphon.engine.errors import CheckpointError, UnsupportedFeature
from antiphon.engine.voice.resample import resample

VOCALS = "vocals"
_NETWORKS = ("demucs.htdemucs.HTDemucs", "demucs.hdemucs.HDemucs", "demucs.demucs.Demucs")
"""The file names the class to be built; nothing else is built from it."""


class Demucs:
    """A `CleanUp`: keeps what the network hears as a voice."""

    def __init__(self, weights: Path) -> None:
        """Load a network from disk; nothing is downloaded.

        Raises:
            UnsupportedFeature: the package is not installed.
            CheckpointError: the file is none of its networks, or none with a source `vocals`.
        """
        try:
            from demucs.apply import apply_model
            from demucs.hf import load_safetensors_model
        except ImportError as error:
            raise UnsupportedFeature(
                "This clean-up needs the package demucs.", field="clean_up"
            ) from error
        _check(weights)
        try:
            self._network: Any = load_safetensors_model(weights).eval()
        except (RuntimeError, TypeError, ValueError, KeyError, AttributeError) as error:
            raise CheckpointError(
                f"{weights.name} does not fit the network that it names.", field=weights.name
            ) from error
        if VOCALS not in self._network.sources:
            raise CheckpointError(f"{weights.name} does not tell vocals apart.", field=weights.name)
        self._apply = apply_model

    def __call__(self, audio: DecodedAudio) -> DecodedAudio:
        """Return the recording with its voices alone, at its own rate and length."""
        rate = int(self._network.samplerate)
        samples = torch.from_numpy(resample(audio.samples, audio.rate, rate))
        mean, deviation = samples.mean(), samples.std() + 1e-8
        channels = int(self._network.audio_channels)
        mix = ((samples - mean) / deviation).expand(1, channels, -1)
        with torch.inference_mode():
            # No random shifts: the same recording gives the same voice.
            parts = self._apply(self._network, mix, shifts=0, split=True, progress=False)
        voice = parts[0, self._network.sources.index(VOCALS)].mean(dim=0) * deviation + mean
        cleaned = resample(voice.numpy().astype(np.float32), rate, audio.rate)
        return DecodedAudio(cleaned[: len(audio.samples)], audio.rate)


def _check(weights: Path) -> None:
    """Compare what a file says of itself with what may be built."""
    try:
        with safe_open(str(weights), framework="pt") as file:
            said = file.metadata() or {}
        arguments = [json.loads(said[key]) for key in ("args", "kwargs")]
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise CheckpointError(
            f"{weights.name} is no Demucs network as a safetensors file.", field=weights.name
        ) from error
    if said.get("klass") not in _NETWORKS or "structure" in said:
        raise CheckpointError(
            f"{weights.name} is none of {', '.join(_NETWORKS)}.", field=weights.name
        )
    if not (isinstance(arguments[0], list) and isinstance(arguments[1], dict)):
        raise CheckpointError(f"{weights.name} has no readable arguments.", field=weights.name)
