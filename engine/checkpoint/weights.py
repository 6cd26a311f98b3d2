"""State dicts from disk: tensors only, one naming of weight norm, every key accounted for."""

from __future__ import annotations

import hashlib
import pickle
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from antiphon.engine.errors import CheckpointError

StateDict = dict[str, Tensor]

NAMES_SHOWN: Final = 8
_NOT_WEIGHTS: Final = frozenset({"epoch", "step"})
"""Counters that training leaves beside the weights."""
_OLD_WEIGHT_NORM: Final = re.compile(r"^(.*)\.weight_([gv])$")
_NEW_PART: Final = {"g": "original0", "v": "original1"}


def load_tensors(path: Path) -> Any:
    """Load what `torch.save` wrote, without running any code from it.

    Raises:
        CheckpointError: missing, truncated, compressed, not made by `torch.save`, or holding more
            than tensors and plain containers.
    """
    if not path.is_file():
        raise CheckpointError(f"{path.name} is missing in {path.parent.name}.", field=path.name)
    zipped = _is_archive(path)
    if zipped:
        _refuse_compression(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path.name} holds more than weights, or is damaged; it was not loaded.",
            field=path.name,
        ) from error
    except Exception as error:  # Damaged files raise whatever the first bad byte leads to.
        raise CheckpointError(
            f"{path.name} cannot be read ({type(error).__name__}).", field=path.name
        ) from error


def _is_archive(path: Path) -> bool:
    try:
        return zipfile.is_zipfile(path)
    except (zipfile.BadZipFile, OSError) as error:  # an end record that contradicts itself
        raise CheckpointError(f"{path.name} is damaged.", field=path.name) from error


def _refuse_compression(path: Path) -> None:
    """Refuse archives that could unpack to more than they are: torch stores without compression."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        # The last is zipfile's word for an archive that asks for a newer version of the format.
        raise CheckpointError(f"{path.name} is damaged.", field=path.name) from error
    compressed = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
    if compressed or sum(entry.file_size for entry in entries) > path.stat().st_size:
        raise CheckpointError(f"{path.name} is compressed; it was not loaded.", field=path.name)


def load_state_dict(path: Path, *, prefix: str = "") -> StateDict:
    """Load a state dict of tensors; `prefix` is removed where keys have it.

    Weight norm is returned under its current names (`parametrizations.weight.original0/1`),
    also where the file has the older `weight_g` and `weight_v`.

    Raises:
        CheckpointError: see `load_tensors`; or a value that is no tensor, named.
    """
    loaded = load_tensors(path)
    if not isinstance(loaded, Mapping):
        raise CheckpointError(f"{path.name} holds no state dict.", field=path.name)
    state: StateDict = {}
    for key, value in loaded.items():
        if key in _NOT_WEIGHTS and not isinstance(value, Tensor):
            continue
        if not isinstance(key, str) or not isinstance(value, Tensor):
            raise CheckpointError(f"{path.name}: {key!r} is no tensor.", field=str(key))
        state[current_name(key.removeprefix(prefix))] = value
    return state


def current_name(key: str) -> str:
    """Return the current name of a weight-norm parameter, any other key unchanged."""
    old = _OLD_WEIGHT_NORM.match(key)
    return f"{old[1]}.parametrizations.weight.{_NEW_PART[old[2]]}" if old else key


def check_state(
    state: Mapping[str, Tensor], expected: Mapping[str, torch.Size | tuple[int, ...]], file: str
) -> None:
    """Compare keys and shapes.

    Raises:
        CheckpointError: naming what is missing, unexpected or of another shape.
    """
    problems = _listed("missing", sorted(set(expected) - set(state)))
    problems += _listed("unexpected", sorted(set(state) - set(expected)))
    problems += _listed(
        "of another shape",
        [
            f"{key} {tuple(state[key].shape)} instead of {tuple(shape)}"
            for key, shape in expected.items()
            if key in state and tuple(state[key].shape) != tuple(shape)
        ],
    )
    if problems:
        raise CheckpointError(f"{file} does not fit its model: {'; '.join(problems)}.", field=file)


def _listed(what: str, names: list[str]) -> list[str]:
    if not names:
        return []
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return [f"{what}: {', '.join(names[:NAMES_SHOWN])}{more}"]


def load_module(
    module: nn.Module, state: Mapping[str, Tensor], file: str, *, ignore: Iterable[str] = ()
) -> None:
    """Copy a state dict into a module, in the module's own dtype.

    Raises:
        CheckpointError: see `check_state`.
    """
    ignored = set(ignore)
    wanted = {key: value for key, value in state.items() if key not in ignored}
    check_state(wanted, {key: t.shape for key, t in module.state_dict().items()}, file)
    module.load_state_dict(wanted)


def content_hash(paths: Iterable[Path], *extra: str) -> str:
    """Return the SHA-256 over names and contents of files, and over further text."""
    total = hashlib.sha256()
    for path in sorted(paths):
        with path.open("rb") as file:
            total.update(
                f"{path.name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode()
            )
    for text in extra:
        total.update(f"{text}\n".encode())
    return total.hexdigest()
