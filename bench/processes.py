"""Processor time of the processes that a benchmark started (Linux)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path


def descendants_cpu_s(root: int | None = None) -> float:
    """Return the processor time of all living descendants of `root` (this process), in seconds.

    In steps of 10 ms; threads that have ended count.
    """
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


def cpu_ms(processes: Sequence[int]) -> float:
    """Return what the living threads of processes have run so far, by the nanosecond.

    For spans that are shorter than the steps of `descendants_cpu_s`.
    """
    total = 0
    for process in processes:
        for thread in Path(f"/proc/{process}/task").iterdir():
            try:
                total += int((thread / "schedstat").read_text().split()[0])
            except FileNotFoundError:
                continue  # It has ended since it was listed.
    return total / 1e6
