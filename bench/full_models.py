"""CosyVoice 2 and 3 at their published size, with random weights.

Key names and shapes are those of the published state dicts (`data/*_shapes.json`). The modules are
built by the loader that serves real checkpoints, so a key or a shape that differs is an error; the
values do not change how long anything takes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import torch

from antiphon.engine.checkpoint.checkpoint import Checkpoint
from antiphon.engine.checkpoint.config import Qwen2Config
from antiphon.engine.checkpoint.document import load_document
from antiphon.engine.checkpoint.weights import StateDict

DATA = Path(__file__).parent / "data"
QWEN2 = Qwen2Config(
    vocab_size=151936,
    hidden_size=896,
    intermediate_size=4864,
    num_hidden_layers=24,
    num_attention_heads=14,
    num_key_value_heads=2,
    max_position_embeddings=32768,
    rms_norm_eps=1e-6,
    rope_theta=1e6,
)
"""Qwen2-0.5B, the backbone of both."""


class RandomCheckpoint(Checkpoint):
    """A checkpoint of published size whose weights are drawn, not read."""

    def __init__(self, version: int) -> None:
        path = DATA / f"cosyvoice{version}.yaml"
        super().__init__(path.parent, load_document(path))
        self._shapes = json.loads((DATA / f"cosyvoice{version}_shapes.json").read_text())

    @cached_property
    def backbone_config(self) -> Qwen2Config:
        """Dimensions of the backbone."""
        return QWEN2

    @property
    def lm_fingerprint(self) -> str:
        """Names exports of the drawn weights."""
        return f"drawn-version-{int(self.generation)}".ljust(24, "-")

    def lm_state_dict(self) -> StateDict:
        """Draw the weights of `llm.pt`."""
        return self._drawn("llm")

    def flow_state_dict(self) -> StateDict:
        """Draw the weights of `flow.pt`."""
        return self._drawn("flow")

    def hift_state_dict(self) -> StateDict:
        """Draw the weights of `hift.pt`."""
        return self._drawn("hift")

    def _drawn(self, part: str) -> StateDict:
        """Small values: activations stay finite through any number of layers."""
        generator = torch.Generator().manual_seed(0)
        return {
            name: torch.empty(shape).uniform_(-0.02, 0.02, generator=generator)
            if len(shape) > 1
            else torch.full(shape, 0.5 if name.endswith("alpha") else 0.01)
            for pattern, shape in self._shapes[part].items()
            for name in expanded(pattern)
        }


def expanded(pattern: str) -> Iterator[str]:
    """Names that a pattern stands for: `layers.{0-2}.weight` is three."""
    found = re.search(r"\{(\d+)-(\d+)\}", pattern)
    if found is None:
        yield pattern
        return
    for number in range(int(found[1]), int(found[2]) + 1):
        yield pattern.replace(found[0], str(number))
