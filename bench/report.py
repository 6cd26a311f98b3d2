"""What every benchmark shares: its switches, its table, its JSON and its plot."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = Mapping[str, str | float | int | bool | None]


def switches(description: str) -> argparse.ArgumentParser:
    """Return a parser with the switches of every benchmark: --out, --json, --plot, --quick."""
    parser = argparse.ArgumentParser(description=description)
    parser.set_defaults(bench=Path(inspect.stack()[1].filename).stem)
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write JSON and PNG here, named like the benchmark"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures as JSON")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the figures as a PNG")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    return parser


def machine() -> dict[str, str | int | None]:
    """Return what the figures were measured on."""
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    return {"device": device, "cores": os.cpu_count(), "torch": torch.__version__}


def print_table(title: str, rows: Sequence[Row]) -> None:
    """Print rows that share their keys as a table."""
    table = Table(title=title, title_justify="left")
    for name in rows[0] if rows else ():
        table.add_column(name, justify="left" if isinstance(rows[0][name], str) else "right")
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    Console(width=max(100, Console().width)).print(table)


def publish(
    arguments: argparse.Namespace,
    title: str,
    rows: Sequence[Row],
    *,
    details: Mapping[str, Any] | None = None,
    draw: Callable[[Axes], None] | None = None,
) -> None:
    """Print the table, and write the JSON and the plot that were asked for."""
    print_table(title, rows)
    if arguments.out:
        arguments.json = arguments.json or arguments.out / f"{arguments.bench}.json"
        arguments.plot = arguments.plot or arguments.out / f"{arguments.bench}.png"
    if arguments.json:
        report = {"title": title, "machine": machine(), "rows": rows, **(details or {})}
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    if arguments.plot and draw:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
        axes.set_title(title)
        draw(axes)
        arguments.plot.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(arguments.plot, dpi=120)
        pyplot.close(figure)


def _cell(value: str | float | int | bool | None) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
