"""Shared by the tests of the text front end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from antiphon.engine.text.normalizer import StreamingNormalizer
from antiphon.engine.text.words import Word


def run(stream: Any, pieces: Sequence[str]) -> list[Any]:
    out: list[Any] = []
    for piece in pieces:
        out.extend(stream.push(piece))
    out.extend(stream.end())
    return out


def normalise(*pieces: str) -> list[Word]:
    return run(StreamingNormalizer(), pieces)


def spoken(*pieces: str) -> str:
    """The words with their marks, as one line."""
    return " ".join(word.text + word.mark for word in normalise(*pieces)).replace(" ,", ",")


def split(text: str, cuts: Sequence[int]) -> list[str]:
    edges = [0, *sorted({c % (len(text) + 1) for c in cuts}), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


_WRITTEN = """
$5 $5.50 €3M million 7 7:30 pm p.m. Dr. St. Smith Nov. 30 30, 2026 2026-11-30 11/30/2026 km 5km °C
% 1/2 10-15 -5 e.g. etc. vs. NASA U.S. a.b@c.com https://x.yz/a(b) R&D **bold** # - 1. 2) `code`
[text](http://u.v "title") [a](b) | |---| ```py [T][UW1] [X] [B] (555) +1 555-1234 — ... ?! 😀 1️⃣
你好 ， Привет ½ No. II World don't '90s end.Next x * 2*3 the I. <b> <3 :) é Mon. min. lbs. A al. et
May [ ] [x] > ### --- km. USD US$5 + = & @ #1 C++ I a|b an apple "quoted" (see 3 ft m/s 20 lb. 9/11
"""
_FRAGMENTS = ["\u200d", "\u0301", *_WRITTEN.split()]
SEPARATORS = ["", " ", " ", " ", "\n", "\n\n", ", ", ". ", "  ", "\t", "! "]

_SIGNS = "a b1.,-'\"*_[]()|#$%&@+=/:;!?\n\té你－１😀\u200d\u20e3°"

TEXTS = st.one_of(
    st.text(max_size=80),
    st.text(_SIGNS, max_size=80),
    st.lists(st.tuples(st.sampled_from(_FRAGMENTS), st.sampled_from(SEPARATORS)), max_size=14).map(
        lambda parts: "".join(a + b for a, b in parts)
    ),
)
SPEAKABLE = TEXTS.map(lambda text: re.sub(r"[\x00-\x1f\x7f-\x9f]", "", text))
"""Texts that `validate_text` lets pass."""
CUTS = st.lists(st.integers(0, 400), max_size=12)
