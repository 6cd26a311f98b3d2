"""From configuration to loaded engines. Heavy imports happen here, when something is loaded."""

from __future__ import annotations

from pathlib import Path

from antiphon.engine.errors import CheckpointError, WatermarkUnavailable
from antiphon.engine.interface import Engine
from antiphon.engine.watermark.interface import Watermark
from antiphon.server.config import (
    Config,
    CosyVoiceEngineSection,
    EngineSection,
    PresetEngineSection,
    WatermarkSection,
)
from antiphon.server.engines import EngineSet


def load_watermark(section: WatermarkSection) -> Watermark:
    """Load the configured watermark.

    Raises:
        WatermarkUnavailable: it cannot be loaded; the message says what to do.
    """
    if section.name == "none":
        from antiphon.engine.watermark.none import NoWatermark

        return NoWatermark()
    if section.name == "perth":
        from antiphon.engine.watermark.perth import PerthWatermark

        return PerthWatermark()
    from antiphon.engine.watermark.audioseal import AudioSealWatermark

    if section.weights is None:
        raise WatermarkUnavailable(
            "The audioseal watermark needs the path of its weights.", field="watermark.weights"
        )
    return AudioSealWatermark(section.weights, payload=section.payload)


def load_engine(section: EngineSection, watermark: Watermark) -> Engine:
    """Load one engine.

    Raises:
        CheckpointError, InvalidConfiguration: it cannot be loaded.
    """
    if isinstance(section, PresetEngineSection):
        from antiphon.engine.preset import PresetEngine

        return PresetEngine(watermark)
    return _load_cosyvoice(section, watermark)


def _load_cosyvoice(section: CosyVoiceEngineSection, watermark: Watermark) -> Engine:
    from antiphon.engine.session import CosyVoiceEngine

    directory = section.model_dir or house_checkpoint()
    if directory is None:
        raise CheckpointError(
            "No checkpoint comes with this package; name one with engines.….model_dir.",
            field="model_dir",
        )
    return CosyVoiceEngine.load(directory, watermark)


def house_checkpoint() -> Path | None:
    """Directory of the checkpoint inside the package, if there is one."""
    import antiphon.engine

    directory = Path(antiphon.engine.__path__[0]) / "checkpoint" / "nano"
    return directory if directory.is_dir() else None


def load_engines(config: Config) -> EngineSet:
    """Load the watermark, then every engine.

    Raises:
        WatermarkUnavailable, CheckpointError, InvalidConfiguration: nothing is served then.
    """
    watermark = load_watermark(config.watermark)
    engines = EngineSet(
        {section.name: load_engine(section, watermark) for section in config.engines},
        model=config.model,
        voice=config.voice,
        watermark=watermark,
        first_hops={
            section.name: section.first_hop
            for section in config.engines
            if isinstance(section, CosyVoiceEngineSection) and section.first_hop is not None
        },
    )
    engines.check_defaults()
    return engines
