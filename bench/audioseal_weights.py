"""AudioSeal checkpoints with random weights, in the official form.

They mark nothing that a detector would find, but cost and streaming are those of the real ones.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

import torch


def write_random(folder: Path) -> Path:
    """Write a streaming generator and its detector; return the generator's path."""
    os.environ.setdefault("NO_TORCH_COMPILE", "1")
    builder, loader = import_module("audioseal.builder"), import_module("audioseal.loader")
    omegaconf = import_module("omegaconf")
    torch.manual_seed(0)
    for name, card, kind, create in (
        (
            "generator_streaming.pth",
            "audioseal_wm_streaming",
            builder.AudioSealWMConfig,
            builder.create_generator,
        ),
        (
            "detector_streaming.pth",
            "audioseal_detector_streaming",
            builder.AudioSealDetectorConfig,
            builder.create_detector,
        ),
    ):
        described = omegaconf.OmegaConf.to_container(loader.load_local_model_config(card))
        model = create(loader.AudioSeal.parse_config(described, config_type=kind))
        # The official files name the convolutions without `inner_conv`.
        state = {k.replace(".inner_conv.", "."): v for k, v in model.state_dict().items()}
        torch.save({"model": state}, folder / name)
    return folder / "generator_streaming.pth"
