"""Whether the configured models fit the device, asked before any of them is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from antiphon.server.config import Config, CosyVoiceEngineSection

if TYPE_CHECKING:
    from antiphon.engine.memory import ModelMemory


def models_memory(
    config: Config,
    also: Path | None = None,
    *,
    device: str | None = None,
    card_gib: float | None = None,
) -> dict[str, ModelMemory]:
    """Return what the models take, by name. Preset voices take next to nothing.

    Args:
        config: the deployment.
        also: a model directory to be counted besides.
        device: only models on this device.
        card_gib: as they would be on a GPU of that size; None for where they are.

    Raises:
        CheckpointError, InvalidConfiguration: a model that cannot be loaded anyway.
    """
    from antiphon.engine.checkpoint import open_checkpoint
    from antiphon.engine.generations import choose_device
    from antiphon.engine.memory import model_memory
    from antiphon.server.loading import engine_acoustics, model_directory, session_acoustics

    sections = [each for each in config.engines if isinstance(each, CosyVoiceEngineSection)]
    if also is not None:
        sections.append(CosyVoiceEngineSection(kind="cosyvoice", name="model", model_dir=also))
    found: dict[str, ModelMemory] = {}
    for section in sections:
        at = choose_device(section.device)
        if device in (None, at):
            directory = model_directory(section)
            name = section.name if section.model_dir is not also else directory.resolve().name
            gpu = at != "cpu" or card_gib is not None
            found[name] = model_memory(
                open_checkpoint(directory),
                section.lm.settings(),
                max_sessions=config.server.limits.max_sessions,
                on_gpu=gpu,
                acoustic=engine_acoustics(section, "cuda" if gpu else "cpu", card_gib),
                session=session_acoustics(section),
            )
    return found


def memory_limit(config: Config) -> float:
    """Return the GiB that all models together may take: `memory_gib`, or the device's."""
    from antiphon.engine.generations import choose_device
    from antiphon.engine.memory import device_gib

    here = device_gib(choose_device("auto"))
    return here if config.memory_gib is None else min(here, config.memory_gib)


def check_memory(config: Config) -> None:
    """Refuse models that do not fit together.

    `memory_gib` bounds what runs on the GPU where there is one, else what runs on this machine.

    Raises:
        InvalidConfiguration: they do not fit; naming the numbers.
        CheckpointError: a model whose configuration cannot be read.
    """
    from antiphon.engine.generations import choose_device
    from antiphon.engine.memory import device_gib, refuse_what_cannot_fit

    main = choose_device("auto")
    refuse_what_cannot_fit(models_memory(config, device=main), memory_limit(config))
    if main != "cpu":
        refuse_what_cannot_fit(models_memory(config, device="cpu"), device_gib("cpu"))
