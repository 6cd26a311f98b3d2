"""Processor time of the processes that a benchmark started."""

from __future__ import annotations

import os
from pathlib import Path


def descendants_cpu_s(root: int | None = None) -> float:
    """Return the processor time of all living descendants of `root` (this process), in seconds."""
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue  # It ended while the others were read.
        ticks[int(folder.name)] = int(fields[11]) + int(fields[12])
        children.setdefault(int(fields[1]), []).append(int(folder.name))
    total, waiting = 0, list(children.get(root or os.getpid(), ()))
    while waiting:
        process = waiting.pop()
        total += ticks[process]
        waiting += children.get(process, ())
    return total / os.sysconf("SC_CLK_TCK")
