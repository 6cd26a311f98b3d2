"""What the speech LM needs of a device's memory, worked out before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Final

from antiphon.engine.checkpoint.config import LMConfig
from antiphon.engine.errors import InvalidConfiguration
from antiphon.engine.speech_lm.qwen2 import expected_shapes

GIB: Final = 2**30
CARDS_GIB: Final = (8, 12, 16, 24, 80)
RUNTIME_GIB: Final = 1.0
"""CUDA context, kernels and working memory of a step, measured generously."""


def weight_bytes(config: LMConfig, bytes_per_value: int) -> int:
    """Return the size of the weights in memory."""
    return bytes_per_value * sum(prod(shape) for shape in expected_shapes(config).values())


def kv_bytes_per_id(config: LMConfig, bytes_per_value: int) -> int:
    """Return what keys and values of one id take, over all layers."""
    backbone = config.backbone
    values = 2 * backbone.num_hidden_layers * backbone.num_key_value_heads * backbone.head_dim
    return bytes_per_value * values


def step_bytes(config: LMConfig, bytes_per_value: int, sequences: int, length: int) -> int:
    """Return what one decoding step reads: weights once, and every sequence's keys and values.

    The text rows of the embedding are not read, but for the ids that are fed.
    """
    text_rows = bytes_per_value * config.backbone.vocab_size * config.backbone.hidden_size
    read = weight_bytes(config, bytes_per_value) - text_rows
    return read + sequences * length * kv_bytes_per_id(config, bytes_per_value)


def ids_in_budget(config: LMConfig, bytes_per_value: int, gib: float) -> int:
    """Return how many ids of all sessions together a budget holds."""
    return int(gib * GIB) // kv_bytes_per_id(config, bytes_per_value)


def memory_left(parts_gib: Mapping[str, float], card_gib: float) -> float:
    """Return the GiB that a card has left beside the named parts and the runtime."""
    return card_gib - RUNTIME_GIB - sum(parts_gib.values())


def refuse_what_cannot_fit(parts_gib: Mapping[str, float], card_gib: float) -> None:
    """Refuse a configuration whose parts do not fit the card, before any is loaded.

    Raises:
        InvalidConfiguration: naming the parts, the sum and the card.
    """
    left = memory_left(parts_gib, card_gib)
    if left < 0:
        named = ", ".join(f"{name} {gib:.2f}" for name, gib in parts_gib.items())
        raise InvalidConfiguration(
            f"The models do not fit: {named} and {RUNTIME_GIB:.2f} GiB for the runtime are "
            f"{-left:.2f} GiB more than the {card_gib:.1f} GiB of this device.",
            field="lm.kv_gib",
            limit=card_gib,
        )
