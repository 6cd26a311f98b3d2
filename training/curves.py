"""Learning curves as a picture."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def draw_curves(history: Sequence[dict[str, float]], path: Path) -> None:
    """One panel a figure over training steps; `train x` and `x` share a panel."""
    names = sorted({key.removeprefix("train ") for row in history for key in row})
    names = [name for name in names if name not in ("step", "seconds")]
    columns = min(3, len(names))
    rows = (len(names) + columns - 1) // columns
    figure, axes = plt.subplots(rows, columns, figsize=(4 * columns, 2.6 * rows), squeeze=False)
    for axis, name in zip(axes.flat, names, strict=False):
        for key, label in ((f"train {name}", "training"), (name, "held out")):
            points = [(row["step"], row[key]) for row in history if key in row]
            if points:
                axis.plot(*zip(*points, strict=True), label=label, marker=".")
        axis.set_title(name)
        axis.set_xlabel("step")
        axis.legend()
    for axis in axes.flat[len(names) :]:
        axis.axis("off")
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    plt.close(figure)
