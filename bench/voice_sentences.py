"""A hundred sentences for the voice gate, written for it; the training grammar makes none of them.

Roughly in the order of length, from one word to about thirty, so that a short form (every n-th)
still covers all lengths.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

SENTENCES: Final = tuple(
    Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
)


def chosen(count: int) -> tuple[str, ...]:
    """`count` of the sentences, spread over all lengths."""
    step = len(SENTENCES) / count
    return tuple(SENTENCES[int(i * step)] for i in range(count))
