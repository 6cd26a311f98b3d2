"""The fastest decoding step that a device's memory allows, beside the steps that were measured."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

import torch

from antiphon.engine.checkpoint.config import LMConfig
from antiphon.engine.speech_lm.memory import step_bytes
from bench.report import Row

COPIED_BYTES: Final = {"cuda": 1 << 30, "cpu": 1 << 28}
"""More than any cache holds."""
COPIES: Final = 10
LENGTH: Final = 200
"""Ids of one sequence, on average, while the bench speaks."""


def bandwidth(device: str) -> float:
    """Return bytes a second that are read and written by copying: the best of several copies."""
    block = torch.empty(COPIED_BYTES[device], dtype=torch.uint8, device=device)
    target = torch.empty_like(block)
    block.zero_()
    target.copy_(block)
    fastest = float("inf")
    for _ in range(COPIES):
        _wait(device)
        start = time.perf_counter()
        target.copy_(block)
        _wait(device)
        fastest = min(fastest, time.perf_counter() - start)
    return 2 * block.numel() / fastest


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def bound_rows(
    config: LMConfig, bytes_per_value: int, bytes_per_s: float, steps_ms: Mapping[int, float]
) -> list[Row]:
    """Compare steps with the bound.

    Args:
        config: of the measured model.
        bytes_per_value: of weights, keys and values.
        bytes_per_s: see `bandwidth`.
        steps_ms: measured steps by the number of sessions that decode together.
    """
    rows: list[Row] = []
    for sessions, measured in steps_ms.items():
        bound = 1e3 * step_bytes(config, bytes_per_value, sessions, LENGTH) / bytes_per_s
        rows.append(
            {
                "sessions": sessions,
                "GB/s": bytes_per_s / 1e9,
                "MB a step": step_bytes(config, bytes_per_value, sessions, LENGTH) / 1e6,
                "bound ms": bound,
                "measured ms": measured,
                "share of bandwidth": bound / measured,
            }
        )
    return rows
