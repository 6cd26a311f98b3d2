"""Paged memory for the keys and values of finished frames.

A page holds the keys and values of one attention chunk (50 frames) at one estimator call for one
guidance row; page p exists in every layer. A chunk takes one page for each call and row, becomes
read-only when the chunk is final, and may then be shared: by the sessions of a voice for its
prompt, by a copied state. Its pages return to the pool when the last reference to it goes.
"""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from antiphon.engine.errors import Overloaded

RETRY_AFTER_S = 1.0


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class CachedChunk:
    """The pages of one chunk, (calls, rows) page numbers."""

    pages: Tensor
    nbytes: int


class PagePool:
    """All pages of one model, allocated once; memory is only touched when first used.

    Raises:
        Overloaded: from `allocate`, when the budget is spent.
    """

    def __init__(
        self,
        *,
        layers: int,
        frames: int,
        width: int,
        budget_bytes: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        self.frames = frames
        self.dtype = dtype
        self.page_bytes = layers * frames * 2 * width * dtype.itemsize
        # Page 0 is never given away: short rows of a batch point at it where they have no chunk.
        count = 1 + max(1, budget_bytes // self.page_bytes)
        shape = (count, frames, 2 * width)
        self.layers = [_untouched(shape, dtype, torch.device(device)) for _ in range(layers)]
        self._free: deque[int] = deque(range(1, count))
        self.capacity = count - 1

    @property
    def used_bytes(self) -> int:
        """Bytes of the pages that are in use."""
        return (self.capacity - len(self._free)) * self.page_bytes

    def allocate(self, calls: int, rows: int) -> CachedChunk:
        """Take the pages of one chunk.

        Raises:
            Overloaded: fewer are free; nothing is taken.
        """
        wanted = calls * rows
        if wanted > len(self._free):
            raise Overloaded(
                f"the acoustic cache is full ({self.capacity * self.page_bytes >> 20} MiB)",
                retry_after_s=RETRY_AFTER_S,
                limit=self.capacity * self.page_bytes,
            )
        taken = [self._free.popleft() for _ in range(wanted)]
        pages = torch.tensor(taken).view(calls, rows)
        chunk = CachedChunk(pages, wanted * self.page_bytes)
        weakref.finalize(chunk, self._free.extendleft, taken)
        return chunk

    def scrub(self, chunk: CachedChunk) -> None:
        """Zero the pages of a chunk that holds non-finite values.

        A hidden key has weight 0 in attention, but 0 · NaN is NaN: the pages' next owner, and rows
        that merely look past them, must not inherit it.
        """
        pages = chunk.pages.flatten()
        for layer in self.layers:
            layer[pages.to(layer.device)] = 0


def _untouched(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros; on a CPU such as the system maps when first used (torch's would be written now)."""
    if device.type == "cpu" and dtype == torch.float32:
        return torch.from_numpy(np.zeros(shape, np.float32))
    return torch.zeros(shape, dtype=dtype, device=device)
