"""How commands talk: results on standard output, everything else on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import typer
from rich.console import Console

from antiphon.engine.errors import AntiphonError

EXIT_ERROR = 2
EXIT_PROBLEMS = 1
"""The command did its work, and what it found is not as it should be."""

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(value: Mapping[str, Any]) -> None:
    """Write one JSON object on one line of standard output."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")
    sys.stdout.flush()


@contextmanager
def progress(what: str, *, quiet: bool = False) -> Iterator[None]:
    """Show a spinner with `what` while the block runs, on a terminal only."""
    if quiet or not err.is_terminal:
        yield
        return
    with err.status(what):
        yield


def fail(error: AntiphonError, *, as_json: bool) -> NoReturn:
    """End the command: one sentence on standard error, with `--json` an object besides."""
    if as_json:
        fields = {"code": error.code, "message": error.message, "field": error.field}
        print_json({"error": fields})
    err.print(error.message, style="red", markup=False)
    raise typer.Exit(EXIT_ERROR)


@contextmanager
def readable_errors(*, as_json: bool = False) -> Iterator[None]:
    """Turn errors that were raised on purpose into a sentence and exit code 2."""
    try:
        yield
    except AntiphonError as error:
        fail(error, as_json=as_json)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
