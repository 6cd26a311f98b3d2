from __future__ import annotations

import torch

from antiphon.engine.speech_lm.memory import (
    GIB,
    ids_in_budget,
    kv_bytes_per_id,
    step_bytes,
    weight_bytes,
)
from antiphon.engine.speech_lm.qwen2 import KVCache, checked_state
from tests.engine.speech_lm.cases import checkpoint


def test_sizes_are_those_of_what_is_allocated() -> None:
    opened = checkpoint(3)
    config = opened.lm_config
    state = checked_state(config, opened.lm_state_dict())
    assert weight_bytes(config, 4) == sum(t.numel() * 4 for t in state.values())
    cache = KVCache.allocate(config.backbone, 3, 100, torch.float32, "cpu")
    assert kv_bytes_per_id(config, 4) * 300 == cache.data.numel() * 4
    assert ids_in_budget(config, 4, 300 * kv_bytes_per_id(config, 4) / GIB) == 300
    assert step_bytes(config, 4, 2, 10) < weight_bytes(config, 4) + 20 * kv_bytes_per_id(config, 4)
