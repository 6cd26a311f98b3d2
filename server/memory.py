"""Whether the configured models fit the device, asked before any of them is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from antiphon.server.config import Config, CosyVoiceEngineSection

if TYPE_CHECKING:
    from antiphon.engine.memory import ModelMemory


def memory_by_device(config: Config) -> dict[str, dict[str, ModelMemory]]:
    """Return what the models take, by device and name. Preset voices take next to nothing.

    Raises:
        CheckpointError, InvalidConfiguration: a model that cannot be loaded anyway.
    """
    from antiphon.engine.checkpoint import open_checkpoint
    from antiphon.engine.generations import choose_device
    from antiphon.engine.memory import model_memory
    from antiphon.server.loading import model_directory

    found: dict[str, dict[str, ModelMemory]] = {}
    for section in config.engines:
        if not isinstance(section, CosyVoiceEngineSection):
            continue
        device = choose_device(section.device)
        found.setdefault(device, {})[section.name] = model_memory(
            open_checkpoint(model_directory(section)),
            section.lm.settings(),
            max_sessions=config.server.limits.max_sessions,
            on_gpu=device != "cpu",
        )
    return found


def check_memory(config: Config) -> None:
    """Refuse models that do not fit together.

    `memory_gib` bounds what runs on the GPU where there is one, else what runs on this machine.

    Raises:
        InvalidConfiguration: they do not fit; naming the numbers.
        CheckpointError: a model whose configuration cannot be read.
    """
    from antiphon.engine.memory import device_gib, refuse_what_cannot_fit

    devices = memory_by_device(config)
    bounded = "cuda" if "cuda" in devices else "cpu"
    for device, models in devices.items():
        limit = device_gib(device)
        if config.memory_gib is not None and device == bounded:
            limit = min(limit, config.memory_gib)
        refuse_what_cannot_fit(models, limit)
