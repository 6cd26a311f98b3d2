"""The nano checkpoint's text vocabulary: 256 bytes, then the special tokens of version 3."""

import re
from typing import Final

from antiphon.engine.checkpoint.config import ModelGeneration
from antiphon.engine.checkpoint.special_tokens import END_OF_PROMPT, special_tokens

SPECIAL: Final = special_tokens(ModelGeneration.V3)
_IDS: Final = {token: 256 + number for number, token in enumerate(SPECIAL)}
END_OF_PROMPT_ID: Final = _IDS[END_OF_PROMPT]
TEXT_TOKENS: Final = 544
"""Rows of the text embedding: the vocabulary, rounded up."""
_TOKEN: Final = re.compile(r"\[[A-Z]+[0-2]?\]|[ .,!?;:]")


def byte_symbols() -> list[str]:
    """The printable stand-ins of byte-level BPE for bytes 0 to 255, in the order of their ids."""
    direct = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spare = iter(range(256, 512))
    return [chr(byte) if byte in direct else chr(next(spare)) for byte in range(256)]


def encode(text: str) -> list[int]:
    """Ids of ` [HH][AH0][L][OW1].` as the checkpoint's tokenizer gives them."""
    tokens = _TOKEN.findall(text)
    assert "".join(tokens) == text, "training text holds phones, spaces and punctuation only"
    return [_IDS[token] if token.startswith("[") else ord(token) for token in tokens]


def is_phone(identifier: int) -> bool:
    """Whether an id is a phone (anything but a byte or a control token)."""
    return identifier >= 256 and SPECIAL[identifier - 256].startswith("[")
