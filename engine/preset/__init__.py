"""Preset voices: the engine for machines too small for cloning."""

from antiphon.engine.preset.engine import PresetEngine

__all__ = ["PresetEngine"]
