"""A compact Qwen2 decoder (arXiv 2407.10671) over the unified vocabulary, with a static KV cache.

Weights only; the cache is a value. A step takes a flat batch of positions from any number of
sequences: some bring one (they decode), some bring several (a prompt, a block of text).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from antiphon.engine.checkpoint.config import LMConfig, Qwen2Config
from antiphon.engine.checkpoint.weights import check_state
from antiphon.engine.speech_lm.batch_plan import BatchPlan, Row
from antiphon.engine.speech_lm.layout import Vocabulary


def expected_shapes(config: LMConfig) -> dict[str, tuple[int, ...]]:
    """Return the keys of `llm.pt` that inference uses, with their shapes."""
    backbone, rows = config.backbone, config.ids.rows
    hidden, inner = backbone.hidden_size, backbone.intermediate_size
    kv = backbone.num_key_value_heads * backbone.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "llm.model.model.embed_tokens.weight": (backbone.vocab_size, hidden),
        "llm.model.model.norm.weight": (hidden,),
        "llm_decoder.weight": (rows, hidden),
        "speech_embedding.weight": (rows, hidden),
    }
    if config.head_bias:
        shapes["llm_decoder.bias"] = (rows,)
    if not config.ids.sos_and_task_are_speech_rows:
        shapes["llm_embedding.weight"] = (2, hidden)
    for layer in range(backbone.num_hidden_layers):
        at = f"llm.model.model.layers.{layer}."
        for name, size in (("q", hidden), ("k", kv), ("v", kv)):
            shapes[f"{at}self_attn.{name}_proj.weight"] = (size, hidden)
            shapes[f"{at}self_attn.{name}_proj.bias"] = (size,)
        shapes[f"{at}self_attn.o_proj.weight"] = (hidden, hidden)
        shapes[f"{at}mlp.gate_proj.weight"] = (inner, hidden)
        shapes[f"{at}mlp.up_proj.weight"] = (inner, hidden)
        shapes[f"{at}mlp.down_proj.weight"] = (hidden, inner)
        shapes[f"{at}input_layernorm.weight"] = (hidden,)
        shapes[f"{at}post_attention_layernorm.weight"] = (hidden,)
    return shapes


UNUSED_KEYS = frozenset({"llm.model.lm_head.weight"})
"""The text head of the backbone: present in published files, without use in speech."""


def checked_state(config: LMConfig, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the used part of a state dict.

    Raises:
        CheckpointError: missing or unexpected keys, other shapes; by name.
    """
    used = {key: value for key, value in state.items() if key not in UNUSED_KEYS}
    check_state(used, expected_shapes(config), "llm.pt")
    return used


def unified_embedding(config: LMConfig, state: Mapping[str, Tensor]) -> Tensor:
    """Return the table of `Vocabulary`: speech rows, text rows, extra rows; (size, hidden)."""
    parts = [state["speech_embedding.weight"], state["llm.model.model.embed_tokens.weight"]]
    if not config.ids.sos_and_task_are_speech_rows:
        parts.append(state["llm_embedding.weight"])
    return torch.cat(parts)


@dataclass(slots=True)
class KVCache:
    """Keys and values of all slots, allocated once.

    `data` is (layers, slots, 2 · kv heads, positions, head dim): keys, then values.
    """

    data: Tensor

    @classmethod
    def allocate(
        cls, config: Qwen2Config, slots: int, positions: int, dtype: torch.dtype, device: str
    ) -> KVCache:
        """Reserve the memory of `slots` sequences of up to `positions` ids each."""
        shape = (
            config.num_hidden_layers,
            slots,
            2 * config.num_key_value_heads,
            positions,
            config.head_dim,
        )
        return cls(torch.zeros(shape, dtype=dtype, device=device))

    @property
    def positions(self) -> int:
        """Ids that one slot holds."""
        return self.data.shape[3]


@dataclass(frozen=True, slots=True)
class _Layer:
    """Weights of one layer as (in, out): one row times such a matrix reads memory in order.

    The scales of the RMS norms are folded into the matrices that follow them.
    """

    qkv: Tensor
    qkv_bias: Tensor
    out: Tensor
    gate_up: Tensor
    down: Tensor


class Qwen2SpeechLM:
    """The network of versions 2 and 3. Immutable; safe to share between threads."""

    def __init__(
        self,
        config: LMConfig,
        state: Mapping[str, Tensor],
        *,
        positions: int,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
    ) -> None:
        """Take the weights of `llm.pt`, converted to `dtype`.

        Raises:
            CheckpointError: see `checked_state`.
        """
        used = checked_state(config, state)
        self.config = config
        self.vocabulary = Vocabulary(config)
        self.device = torch.device(device)
        self.dtype = dtype
        self._backbone = config.backbone

        def get(name: str) -> Tensor:
            return used[name].to(device=device, dtype=dtype)

        self.embedding_table = unified_embedding(config, used).to(device=device, dtype=dtype)
        """(vocabulary size, hidden)."""
        self._head = _folded(get("llm_decoder.weight"), get("llm.model.model.norm.weight"))
        self._head_bias = get("llm_decoder.bias") if config.head_bias else None
        self._layers = [self._layer(i, get) for i in range(config.backbone.num_hidden_layers)]
        self._cos, self._sin = _rotary_table(config.backbone, positions, dtype, device)
        self._eps = torch.tensor(config.backbone.rms_norm_eps, dtype=dtype, device=device)

    @staticmethod
    def _layer(index: int, get: Callable[[str], Tensor]) -> _Layer:
        at = f"llm.model.model.layers.{index}."

        def joined(folder: str, names: str, kind: str) -> Tensor:
            return torch.cat([get(f"{at}{folder}.{name}_proj.{kind}") for name in names.split()])

        return _Layer(
            qkv=_folded(joined("self_attn", "q k v", "weight"), get(f"{at}input_layernorm.weight")),
            qkv_bias=joined("self_attn", "q k v", "bias"),
            out=get(f"{at}self_attn.o_proj.weight").t().contiguous(),
            gate_up=_folded(
                joined("mlp", "gate up", "weight"), get(f"{at}post_attention_layernorm.weight")
            ),
            down=get(f"{at}mlp.down_proj.weight").t().contiguous(),
        )

    @torch.no_grad()
    def step(self, cache: KVCache, rows: Sequence[Row], *, logits_of_all: bool = False) -> Tensor:
        """Append ids to their slots and return float32 logits over the speech rows.

        Args:
            cache: written in place at the new positions.
            rows: each slot at most once; at least one id each.
            logits_of_all: for every new position instead of the last one of each row.

        Returns:
            (rows, speech rows), or (positions, speech rows) with `logits_of_all`.
        """
        plan = BatchPlan(rows, self.device)
        hidden = functional.embedding(plan.ids, self.embedding_table)
        cos, sin = plan.at_positions(self._cos), plan.at_positions(self._sin)
        for layer, store in zip(self._layers, cache.data, strict=True):
            hidden = self._attend(layer, store, plan, hidden, cos, sin)
            gate, up = torch.mm(self._normed(hidden), layer.gate_up).chunk(2, -1)
            hidden = torch.addmm(hidden, functional.silu(gate).mul_(up), layer.down)
        if not logits_of_all and len(plan.ids) != len(rows):
            hidden = hidden[plan.last]
        return self._project(self._normed(hidden), self._head, self._head_bias).float()

    def _normed(self, hidden: Tensor) -> Tensor:
        """RMS norm without its scale. Three small kernels; the library's has five."""
        norm = torch.linalg.vector_norm(hidden, dim=-1, keepdim=True)
        return hidden * torch.addcmul(self._eps, norm, norm, value=1 / hidden.shape[-1]).rsqrt_()

    @staticmethod
    def _project(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return torch.mm(hidden, weight) if bias is None else torch.addmm(bias, hidden, weight)

    def _attend(
        self,
        layer: _Layer,
        store: Tensor,
        plan: BatchPlan,
        hidden: Tensor,
        cos: Tensor,
        sin: Tensor,
    ) -> Tensor:
        config = self._backbone
        heads, kv_heads, dim = (
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim,
        )
        qkv = self._project(self._normed(hidden), layer.qkv, layer.qkv_bias)
        qkv = qkv.view(len(plan.ids), heads + 2 * kv_heads, dim)
        rotated = qkv[:, : heads + kv_heads]
        # Rotary positions in the half-split form: the sine table carries the sign.
        swapped = rotated.roll(dim // 2, -1).mul_(sin)
        rotated.mul_(cos).add_(swapped)
        plan.write(store, qkv[:, heads:])
        mixed = plan.attend(store, qkv[:, :heads], kv_heads)
        return torch.addmm(hidden, mixed, layer.out)


def _folded(weight: Tensor, scale: Tensor) -> Tensor:
    """Return (in, out) of an (out, in) matrix whose input was to be multiplied by `scale`."""
    return (weight * scale).t().contiguous()


def _rotary_table(
    config: Qwen2Config, positions: int, dtype: torch.dtype, device: str
) -> tuple[Tensor, Tensor]:
    """Return cosine and signed sine, (positions, 1, head dim)."""
    half = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    angles = torch.arange(positions).float()[:, None] / config.rope_theta**half
    cos, sin = angles.cos(), angles.sin()
    cos = torch.cat((cos, cos), -1)[:, None].to(device=device, dtype=dtype)
    sin = torch.cat((-sin, sin), -1)[:, None].to(device=device, dtype=dtype)
    return cos, sin
