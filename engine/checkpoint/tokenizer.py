"""The text tokenizer of versions 2 and 3: Qwen2's byte-level BPE with the speech extras."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

from antiphon.engine.checkpoint.config import ModelGeneration
from antiphon.engine.checkpoint.special_tokens import END_OF_PROMPT, special_tokens
from antiphon.engine.errors import CheckpointError

MAX_FILE_BYTES: Final = 64 << 20
_SPLIT: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Qwen2 cuts text before byte-pair merging (digits stand alone)."""


class TextTokenizer:
    """Text to ids. Special tokens are recognised wherever they stand in the text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text; nothing is added at its ends."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def token_id(self, token: str) -> int | None:
        """Return the id of one token as written, or None."""
        found: int | None = self._tokenizer.token_to_id(token)
        return found

    @property
    def size(self) -> int:
        """Tokens in all, the special ones included."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    @property
    def end_of_prompt(self) -> int:
        """Id of `<|endofprompt|>`, which ends an instruction or a system prompt.

        Looked up: 151646 in the published models, others in smaller ones.
        """
        found = self.token_id(END_OF_PROMPT)
        assert found is not None
        return found


def _read_json(path: Path) -> Any:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise CheckpointError(
                f"{path.name} is too large.", field=path.name, limit=MAX_FILE_BYTES
            )
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path.name} cannot be read: {error}", field=path.name) from error


def _from_merges(folder: Path) -> Tokenizer:
    vocabulary, merges = folder / "vocab.json", folder / "merges.txt"
    for path in (vocabulary, merges):
        if not path.is_file():
            raise CheckpointError(
                f"{folder.name} has neither tokenizer.json nor {path.name}.", field=path.name
            )
    try:
        model = BPE.from_file(str(vocabulary), str(merges))
    except Exception as error:  # The library raises bare exceptions for bad files.
        raise CheckpointError(
            f"The tokenizer in {folder.name} cannot be read: {error}", field=merges.name
        ) from error
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _from_json(path: Path) -> Tokenizer:
    _read_json(path)
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # The library raises bare exceptions for bad files.
        raise CheckpointError(f"{path.name} cannot be read: {error}", field=path.name) from error


def _own_added_tokens(folder: Path) -> Mapping[int, str]:
    """Return the special tokens that the folder itself states, by id."""
    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return {}
    stated = _read_json(path)
    try:
        entries = stated.get("added_tokens_decoder", {})
        return {int(key): str(entry["content"]) for key, entry in sorted(entries.items())}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path.name}: added_tokens_decoder is malformed.", field=path.name
        ) from error


def _add(tokenizer: Tokenizer, tokens: Sequence[str]) -> None:
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in tokens])


def load_tokenizer(folder: Path, generation: ModelGeneration) -> TextTokenizer:
    """Load the tokenizer folder and append the special tokens of the generation.

    Raises:
        CheckpointError: missing or malformed files; a special token whose id is not the stated one.
    """
    whole = folder / "tokenizer.json"
    tokenizer = _from_json(whole) if whole.is_file() else _from_merges(folder)
    own = _own_added_tokens(folder)
    _add(tokenizer, [own[key] for key in sorted(own)])
    _add(tokenizer, special_tokens(generation))
    for identifier, token in own.items():
        if tokenizer.token_to_id(token) != identifier:
            raise CheckpointError(
                f"{folder.name}: the token {token} has id {tokenizer.token_to_id(token)}, "
                f"not {identifier} as tokenizer_config.json says.",
                field="added_tokens_decoder",
            )
    return TextTokenizer(tokenizer)
