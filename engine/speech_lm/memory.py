"""What the speech LM needs of a device's memory, worked out before anything is loaded."""

from __future__ import annotations

from math import prod
from typing import Final

from antiphon.engine.checkpoint.config import LMConfig
from antiphon.engine.errors import InvalidConfiguration
from antiphon.engine.speech_lm.qwen2 import expected_shapes
from antiphon.engine.speech_lm.settings import FEWEST_POSITIONS, TORCH_POSITIONS, LMSettings

GIB: Final = 2**30


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


def torch_positions(config: LMConfig, settings: LMSettings, sequences: int) -> int:
    """Return how many ids each of `sequences` slots of the torch backend holds.

    Raises:
        InvalidConfiguration: the budget leaves too few for a sentence.
    """
    positions = min(TORCH_POSITIONS, config.backbone.max_position_embeddings)
    if settings.kv_gib is None:
        return positions
    positions = min(positions, ids_in_budget(config, 4, settings.kv_gib) // sequences)
    if positions < FEWEST_POSITIONS:
        least = sequences * FEWEST_POSITIONS * kv_bytes_per_id(config, 4) / GIB
        raise InvalidConfiguration(
            f"lm.kv_gib holds {positions} ids for each of {sequences} sessions; {FEWEST_POSITIONS} "
            f"are needed. Give it {least:.2f} GiB, or allow fewer sessions.",
            field="lm.kv_gib",
            limit=round(least, 2),
        )
    return positions
