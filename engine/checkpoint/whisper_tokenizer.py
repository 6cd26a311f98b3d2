"""The text tokenizer of version 1: Whisper's multilingual byte-level BPE.

Its ranks lie in the `openai-whisper` package, not in the model directory; only that file of the
package is read, no code of it is run. The special tokens follow the ranks in a fixed order.
"""

from __future__ import annotations

import base64
import binascii
import importlib.util
from pathlib import Path
from typing import Final

from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from antiphon.engine.checkpoint.tokenizer import MAX_FILE_BYTES, TextTokenizer
from antiphon.engine.errors import CheckpointError

RANKS_FILE: Final = "assets/multilingual.tiktoken"
_SPLIT: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""How GPT-2 cuts text before byte-pair merging."""
_LANGUAGES: Final = (
    "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th "
    "ur hr bg lt la mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr "
    "pa si km sn yo so af oc ka be tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt "
    "haw ln ha ba jw su yue"
)
_AFTER_LANGUAGES: Final = (
    "translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps",
)  # fmt: skip
TIMESTAMPS: Final = 1501
"""0.00 to 30.00 s in steps of 20 ms."""


def special_tokens() -> list[str]:
    """Return the tokens after the ranks, in the order of their ids (100 languages)."""
    names = ["endoftext", "startoftranscript", *_LANGUAGES.split(), *_AFTER_LANGUAGES]
    names += [f"{step * 0.02:.2f}" for step in range(TIMESTAMPS)]
    return [f"<|{name}|>" for name in names]


def load_whisper_tokenizer(ranks: Path | None = None) -> TextTokenizer:
    """Load the tokenizer from a file of ranks, by default that of the installed package.

    Raises:
        CheckpointError: the package is not installed, or the file is damaged.
    """
    tokenizer = Tokenizer(_model(_read_ranks(ranks or _package_file())))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in special_tokens()]
    )
    return TextTokenizer(tokenizer)


def _package_file() -> Path:
    found = importlib.util.find_spec("whisper")
    for folder in (found.submodule_search_locations or []) if found else []:
        path = Path(folder) / RANKS_FILE
        if path.is_file():
            return path
    raise CheckpointError(
        "CosyVoice 1 needs the text tokenizer of Whisper: install the package openai-whisper.",
        field=RANKS_FILE,
    )


def _read_ranks(path: Path) -> list[bytes]:
    """Return the tokens' bytes in the order of their ids."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise CheckpointError(f"{path.name} is too large.", field=path.name)
        lines = path.read_text(encoding="ascii").split("\n")
        pairs = [line.split(" ") for line in lines if line]
        ranks = {int(rank): _decode(token) for token, rank in pairs}
    except (OSError, ValueError, binascii.Error) as error:
        raise CheckpointError(f"{path.name} cannot be read.", field=path.name) from error
    tokens = [ranks[rank] for rank in sorted(ranks)]
    singles = {bytes([value]) for value in range(256)}
    if sorted(ranks) != list(range(len(ranks))) or not singles <= set(tokens):
        raise CheckpointError(f"{path.name} is no list of byte-pair ranks.", field=path.name)
    return tokens


def _decode(token: str) -> bytes:
    # The published file ends with an empty token, written as a lone pad character.
    return b"" if token == "=" else base64.b64decode(token, validate=True)


def _model(tokens: list[bytes]) -> BPE:
    """Turn ranks into a vocabulary and merges.

    By ranks, any two neighbours merge whose join is a token, the lowest rank first: so every way to
    cut a token into two tokens is a merge, in the order of the whole token's rank.
    """
    letters = _byte_letters()
    names = [_spell(token, letters) for token in tokens]
    known = dict(zip(tokens, names, strict=True))
    merges = [
        (known[token[:cut]], known[token[cut:]])
        for token in tokens
        for cut in range(1, len(token))
        if token[:cut] in known and token[cut:] in known
    ]
    return BPE(vocab={name: rank for rank, name in enumerate(names)}, merges=merges)


def _spell(token: bytes, letters: list[str]) -> str:
    return "".join(letters[value] for value in token)


def _byte_letters() -> list[str]:
    """Return the printable letter that stands for each byte in a byte-level vocabulary.

    Printable Latin-1 stands for itself; the others follow from U+0100 in order (GPT-2's table).
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    letters, shifted = [], 0x100
    for value in range(256):
        if value in printable:
            letters.append(chr(value))
        else:
            letters.append(chr(shifted))
            shifted += 1
    return letters
