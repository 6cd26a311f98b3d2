"""How one step's positions map to cache slots, worked out once for all layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence's share of a step: `ids` are appended to `slot`, which holds `length` ids."""

    slot: int
    length: int
    ids: Sequence[int]


class BatchPlan:
    """Flat ids and positions of a step, and attention over the slots they belong to.

    Rows of one id attend together, over the span of slots that they cover; rows of several ids
    one by one with a causal mask. Cache views are narrowed, never copied.
    """

    def __init__(self, rows: Sequence[Row], device: torch.device) -> None:
        self._rows = rows
        self._device = device
        self._counts = [len(row.ids) for row in rows]
        ends = list(accumulate(self._counts))
        self._starts = [end - count for end, count in zip(ends, self._counts, strict=True)]
        self._single = [i for i, count in enumerate(self._counts) if count == 1]
        self._several = [i for i, count in enumerate(self._counts) if count > 1]
        self.ids = self._index([token for row in rows for token in row.ids])
        self.last = [end - 1 for end in ends]
        """Index of each row's last position among the flat ones."""
        self._alone = len(rows) == 1
        if not self._alone:
            self._positions = self._index(
                [p for r in rows for p in range(r.length, r.length + len(r.ids))]
            )
            self._slots = self._index([row.slot for row in rows for _ in row.ids])
        if self._single:
            self._plan_single()
        self._masks = {i: self._causal(rows[i]) for i in self._several}

    def _index(self, values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._device)

    def at_positions(self, table: Tensor) -> Tensor:
        """Return the entries of a table by position, (flat positions, …)."""
        if self._alone:
            start = self._rows[0].length
            return table[start : start + self._counts[0]]
        return table[self._positions]

    def _plan_single(self) -> None:
        rows = [self._rows[i] for i in self._single]
        low, high = min(r.slot for r in rows), max(r.slot for r in rows) + 1
        longest = max(row.length for row in rows) + 1
        self._span = (low, high)
        self._longest = longest
        self._single_mask: Tensor | None = None
        in_order = [row.slot for row in rows] == list(range(low, high))
        self._dense = in_order and not self._several
        """Whether the flat order is the slots' order and nothing else is in the batch."""
        if not self._dense:
            self._places = self._index([row.slot - low for row in rows])
            self._flat = self._index([self._starts[i] for i in self._single])
        if high - low > 1:
            lengths = torch.ones(high - low, dtype=torch.int64)
            for row in rows:
                lengths[row.slot - low] = row.length + 1
            mask = torch.arange(longest)[None] < lengths[:, None]
            self._single_mask = mask[:, None, None].to(self._device)

    def _causal(self, row: Row) -> Tensor | None:
        """Return which of the slot's ids each new one sees; None where plain causality says it."""
        if row.length == 0:
            return None
        count = len(row.ids)
        seen = torch.arange(row.length + count)[None]
        return (seen <= torch.arange(row.length, row.length + count)[:, None]).to(self._device)

    def write(self, store: Tensor, keys_values: Tensor) -> None:
        """Put new keys and values, (positions, 2 · kv heads, dim), into one layer's cache."""
        if not self._alone:
            store[self._slots, :, self._positions] = keys_values
            return
        row = self._rows[0]
        view = store[row.slot, :, row.length : row.length + len(row.ids)]
        view.copy_(keys_values.transpose(0, 1))

    def attend(self, store: Tensor, queries: Tensor, kv_heads: int) -> Tensor:
        """Attend with (positions, heads, dim) queries; return (positions, heads · dim)."""
        count, heads, dim = queries.shape
        if self._single and self._dense:
            return self._attend_single(store, queries, kv_heads).reshape(count, heads * dim)
        mixed = queries.new_empty(count, heads, dim)
        if self._single:
            low, high = self._span
            spread = queries.new_zeros(high - low, heads, dim)
            spread[self._places] = queries[self._flat]
            found = self._attend_single(store, spread, kv_heads)
            mixed[self._flat] = found[self._places]
        for i in self._several:
            start, row = self._starts[i], self._rows[i]
            part = slice(start, start + len(row.ids))
            mixed[part] = self._attend_several(i, store, queries[part], kv_heads)
        return mixed.view(count, heads * dim)

    def _attend_single(self, store: Tensor, queries: Tensor, kv_heads: int) -> Tensor:
        slots, heads, dim = queries.shape
        low, high = self._span
        # The heads that share keys are queries of one key head: grouped attention without copies.
        grouped = queries.view(slots, kv_heads, heads // kv_heads, dim)
        part = store[low:high, :, : self._longest]
        mixed = functional.scaled_dot_product_attention(
            grouped, part[:, :kv_heads], part[:, kv_heads:], attn_mask=self._single_mask
        )
        return mixed.reshape(slots, heads, dim)

    def _attend_several(self, i: int, store: Tensor, queries: Tensor, kv_heads: int) -> Tensor:
        row = self._rows[i]
        part = store[row.slot : row.slot + 1, :, : row.length + len(row.ids)]
        mask = self._masks[i]
        mixed = functional.scaled_dot_product_attention(
            queries.transpose(0, 1)[None],
            part[:, :kv_heads],
            part[:, kv_heads:],
            attn_mask=mask,
            is_causal=mask is None,
            enable_gqa=True,
        )
        return mixed[0].transpose(0, 1)
