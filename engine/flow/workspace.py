"""Buffers and views of the cached estimator, one set for each shape of a batch."""

from __future__ import annotations

from collections import OrderedDict
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
    first_head: Tensor
    """(rows, frames, 2, dim_head / 2, 2) view of the first head's query and key, in pairs."""
    turned: Tensor | None
    """The same as complex numbers, where the precision has any."""
    fresh: Tensor
    """(rows, frames, 2 · inner) view of key and value."""
    query: Tensor
    """(rows, heads, frames, dim_head) view."""
    gathered: Tensor
    """(rows · chunks, chunk frames, 2 · inner): all pages that are seen."""
    key: Tensor
    """(rows, heads, keys, dim_head) view of `gathered`."""
    value: Tensor

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers."""
        return self.packed.nbytes + self.gathered.nbytes

    def turn(self, rotation: Tensor) -> None:
        """Apply rotary embedding, (rows or 1, frames, 1, dim_head / 2) complex, in place."""
        if self.turned is not None:
            self.turned.mul_(rotation)
        else:
            turned = torch.view_as_complex(self.first_head.float()) * rotation
            self.first_head.copy_(torch.view_as_real(turned))


class Workspaces:
    """The sets used last."""

    def __init__(self, heads: int, dim_head: int, chunk_frames: int = 50) -> None:
        self._heads = heads
        self._dim_head = dim_head
        self._chunk_frames = chunk_frames
        self._known: OrderedDict[tuple[int, ...], Workspace] = OrderedDict()
        self._bytes = 0

    def get(self, rows: int, frames: int, chunks: int, keys: int, like: Tensor) -> Workspace:
        """Return the set for a batch's shape; `like` gives type and device."""
        key = (rows, frames, chunks, keys)
        known = self._known.pop(key, None)
        if known is None:
            known = self._make(rows, frames, chunks, keys, like)
            self._bytes += known.nbytes
        self._known[key] = known
        while self._bytes > MOST_BYTES and len(self._known) > 1:
            self._bytes -= self._known.popitem(last=False)[1].nbytes
        return known

    def _make(self, rows: int, frames: int, chunks: int, keys: int, like: Tensor) -> Workspace:
        heads, dim_head = self._heads, self._dim_head
        inner = heads * dim_head
        packed = like.new_empty(rows * frames, 3 * inner)
        split = packed.view(rows, frames, 3, heads, dim_head)
        first = split[:, :, :2, 0].view(rows, frames, 2, dim_head // 2, 2)
        gathered = like.new_empty(rows * chunks, self._chunk_frames, 2 * inner)
        pages = gathered.view(rows, chunks * self._chunk_frames, 2, heads, dim_head)
        return Workspace(
            frames=frames,
            packed=packed,
            first_head=first,
            turned=torch.view_as_complex(first) if like.dtype == torch.float32 else None,
            fresh=packed.view(rows, frames, 3 * inner)[..., inner:],
            query=split[:, :, 0].transpose(1, 2),
            gathered=gathered,
            key=pages[:, :keys, 0].transpose(1, 2),
            value=pages[:, :keys, 1].transpose(1, 2),
        )
