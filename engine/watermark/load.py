"""From the name in a configuration to a loaded watermark."""

from __future__ import annotations

from pathlib import Path

from antiphon.engine.errors import WatermarkUnavailable
from antiphon.engine.watermark.audioseal import AudioSealWatermark
from antiphon.engine.watermark.interface import Watermark
from antiphon.engine.watermark.none import NoWatermark
from antiphon.engine.watermark.perth import PerthWatermark

NAMES = ("perth", "audioseal", "none")


def load_watermark(
    name: str, *, payload: int | None = None, weights: Path | None = None
) -> Watermark:
    """Load the watermark `perth`, `audioseal` or, in a laboratory, `none`.

    Args:
        name: one of `NAMES`.
        payload: 16 bits, for `audioseal` only.
        weights: the generator's checkpoint, for `audioseal` only.

    Raises:
        WatermarkUnavailable: it cannot be loaded; the message says what to do.
    """
    if name == "audioseal":
        if weights is None:
            raise WatermarkUnavailable(
                "The audioseal watermark needs the path of its weights.", field="watermark.weights"
            )
        return AudioSealWatermark(weights, payload=payload)
    if payload is not None or weights is not None:
        raise WatermarkUnavailable(
            f"The watermark {name!r} has no payload and no weights to choose.",
            field="watermark.name",
        )
    if name == "perth":
        return PerthWatermark()
    if name == "none":
        return NoWatermark()
    raise WatermarkUnavailable(
        f"There is no watermark {name!r}; there is {', '.join(NAMES)}.", field="watermark.name"
    )
