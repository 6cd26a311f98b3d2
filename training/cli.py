"""`antiphon-train`: one command a stage, and one for all of them."""

import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
import typer

from antiphon.training.recipe import Recipe, for_seconds, within
from antiphon.training.run import STAGES, Run

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__)

Folder = Annotated[Path, typer.Option("--run", help="Folder of the run; made if it is not there.")]
Budget = Annotated[str | None, typer.Option(help="Training time, as 6h, 90m or 600s.")]

_KEEP_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
    "MALLOC_TOP_PAD_": str(256 << 20),
}
"""glibc then keeps freed memory instead of returning it to the system after every step, which
nearly doubles the speed of the vocoder's training on a CPU."""


def seconds(text: str) -> float:
    """`6h`, `90m` or `600s` in seconds.

    Raises:
        typer.BadParameter: another form.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([hms])", text)
    if match is None:
        raise typer.BadParameter(f"{text!r} is no time; write 6h, 90m or 600s.")
    return float(match[1]) * {"h": 3600.0, "m": 60.0, "s": 1.0}[match[2]]


@app.command()
def data(run: Folder = Path("runs/nano"), part: int = 0, parts: int = 1) -> None:
    """Make the corpus; several processes may each make a part."""
    Run(run, Recipe()).data(part, parts)


@app.command()
def kokoro(run: Folder = Path("runs/nano")) -> None:
    """Add the second teacher's voices to the corpus (about real time on one core)."""
    Run(run, Recipe()).kokoro()


@app.command()
def recordings(manifest: Path, run: Folder = Path("runs/nano")) -> None:
    """Add recordings of people who consented; needs the tokenizer and f0 stages."""
    count = Run(run, Recipe()).recordings(manifest)
    print(f"{count} recordings aligned and added")


@app.command()
def stage(
    name: Annotated[str, typer.Argument(help=", ".join(STAGES))],
    run: Folder = Path("runs/nano"),
    budget: Budget = None,
) -> None:
    """Train one stage, from where it stands."""
    if name not in STAGES:
        raise typer.BadParameter(f"{name!r} is no stage; known are {', '.join(STAGES)}.")
    recipe = Recipe()
    if budget is not None:
        plan = for_seconds(recipe.stages[name], seconds(budget))
        recipe = replace(recipe, stages={**recipe.stages, name: plan})
    Run(run, recipe).train(name)


@app.command(name="all")
def everything(run: Folder = Path("runs/nano"), budget: Budget = None) -> None:
    """Data, every stage and the export, in order; finished parts are not repeated."""
    recipe = Recipe() if budget is None else within(Recipe(), seconds(budget))
    work = Run(run, recipe)
    work.data()
    for name in STAGES:
        print(f"== {name}", flush=True)
        work.train(name)
    work.export(run / "nano")
    work.export(run / "nano-fast", student=True)


@app.command()
def export(
    run: Folder = Path("runs/nano"),
    to: Path = Path("runs/nano/nano"),
    student: bool = False,
    figures: Annotated[Path | None, typer.Option(help="JSON of bench.voice, for the card.")] = None,
) -> None:
    """Write the checkpoint directory from the best weights so far."""
    Run(run, Recipe()).export(to, student=student, figures=figures)


def main() -> None:
    """Entry point: fixes the allocator's behaviour, which the environment must say at start."""
    if any(name not in os.environ for name in _KEEP_MEMORY) and sys.platform == "linux":
        environment = {**_KEEP_MEMORY, **os.environ}
        os.execvpe(sys.argv[0], sys.argv, environment)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    app()
