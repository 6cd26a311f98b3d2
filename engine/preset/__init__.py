"""The second engine: preset voices that speak a clause at a time on any CPU."""

from antiphon.engine.preset.engine import PresetEngine

__all__ = ["PresetEngine"]
