"""Buffers and views of the cached estimator, one set for each shape of a batch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

MOST_BYTES = 256 << 20
"""Kept in all. A session at nano size needs 0.1 to 2 MB for a shape; a few dozen shapes recur."""


@dataclass(frozen=True, slots=True, eq=False)
class Workspace:
    """What every layer of a call writes into, and the views through which it is read."""

    frames: int
    packed: Tensor
    """(rows · frames, 3 · inner): query, key and value."""
    turned: Tensor
    """(rows, frames, 2, dim_head / 2) complex view of the first head's query and key."""
    fresh: Tensor
    """(rows, frames, 2 · inner) view of key and value."""
    query: Tensor
    """(rows, heads, frames, dim_head) view."""
    gathered: Tensor
    """(rows · chunks, chunk frames, 2 · inner): all pages that are seen."""
    key: Tensor
    """(rows, heads, keys, dim_head) view of `gathered`."""
    value: Tensor
    mask: Tensor | None
    """(rows, 1, 1, keys), True on what a row may see; None where all see the same number."""

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers."""
        return self.packed.nbytes + self.gathered.nbytes


class Workspaces:
    """The sets used last."""

    def __init__(self, heads: int, dim_head: int, chunk_frames: int = 50) -> None:
        self._heads = heads
        self._dim_head = dim_head
        self._chunk_frames = chunk_frames
        self._known: OrderedDict[tuple[int, ...], Workspace] = OrderedDict()
        self._bytes = 0

    def get(
        self, rows: int, frames: int, chunks: int, seen: Sequence[int], like: Tensor
    ) -> Workspace:
        """Return the set for a batch's shape; `like` gives type and device."""
        key = (rows, frames, chunks, *seen)
        known = self._known.pop(key, None)
        if known is None:
            known = self._make(rows, frames, chunks, seen, like)
            self._bytes += known.nbytes
        self._known[key] = known
        while self._bytes > MOST_BYTES and len(self._known) > 1:
            self._bytes -= self._known.popitem(last=False)[1].nbytes
        return known

    def _make(
        self, rows: int, frames: int, chunks: int, seen: Sequence[int], like: Tensor
    ) -> Workspace:
        heads, dim_head = self._heads, self._dim_head
        inner = heads * dim_head
        packed = like.new_empty(rows * frames, 3 * inner)
        split = packed.view(rows, frames, 3, heads, dim_head)
        first = split[:, :, :2, 0].view(rows, frames, 2, dim_head // 2, 2)
        gathered = like.new_empty(rows * chunks, self._chunk_frames, 2 * inner)
        keys = max(seen)
        pages = gathered.view(rows, chunks * self._chunk_frames, 2, heads, dim_head)
        mask: Tensor | None = None
        if min(seen) != keys:
            limits = torch.tensor(seen, device=like.device)[:, None]
            mask = (torch.arange(keys, device=like.device) < limits)[:, None, None]
        return Workspace(
            frames=frames,
            packed=packed,
            turned=torch.view_as_complex(first),
            fresh=packed.view(rows, frames, 3 * inner)[..., inner:],
            query=split[:, :, 0].transpose(1, 2),
            gathered=gathered,
            key=pages[:, :keys, 0].transpose(1, 2),
            value=pages[:, :keys, 1].transpose(1, 2),
            mask=mask,
        )
