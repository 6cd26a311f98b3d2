"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", "-c", help="YAML file; the built-in defaults without it.")
]
Url = Annotated[
    str | None, typer.Option(help="Address of a running server; without it one is started.")
]
ApiKey = Annotated[
    str | None, typer.Option(envvar="ANTIPHON_API_KEY", help="Key of the running server.")
]
