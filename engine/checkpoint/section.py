"""One network's part of the YAML, taken key by key so that nothing is overlooked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from antiphon.engine.checkpoint.document import Document, Tagged
from antiphon.engine.errors import CheckpointError


class Section:
    """Typed reads of one mapping; `finish` refuses keys that were neither read nor ignored.

    A key that we do not know may change the numbers, so it is an error, not a warning.
    """

    def __init__(self, document: Document, path: str, values: Mapping[str, Any], name: str) -> None:
        self.class_name = name
        self._document = document
        self._path = path
        self._values = values
        self._taken: set[str] = set()

    @classmethod
    def of(cls, document: Document, path: str, value: Any) -> Section:
        """Wrap a mapping or a tagged mapping.

        Raises:
            CheckpointError: it is neither.
        """
        value = document.resolve(value)
        name = ""
        if isinstance(value, Tagged):
            name, value = value.class_name, document.resolve(value.arguments)
        if not isinstance(value, Mapping):
            raise document.fail(f"{path} is not a section of keys")
        return cls(document, path, value, name)

    def fail(self, key: str, message: str) -> CheckpointError:
        """Return the error that names a key of this section."""
        file = self._document.path.name
        name = f"{self._path}.{key}" if self._path else key
        return CheckpointError(f"{file}: {name} {message}.", field=name)

    def has(self, key: str) -> bool:
        """Whether the key is there and not null."""
        return self._values.get(key) is not None

    def raw(self, key: str) -> Any:
        """Return a value with its references resolved.

        Raises:
            CheckpointError: the key is missing.
        """
        self._taken.add(key)
        if key not in self._values:
            raise self.fail(key, "is missing")
        return self._document.resolve(self._values[key])

    def section(self, key: str) -> Section:
        """Return a nested section."""
        return Section.of(self._document, f"{self._path}.{key}", self.raw(key))

    def integer(self, key: str, *, low: int = 1, high: int = 1 << 24) -> int:
        """Return a whole number within bounds; the bounds keep allocation sane."""
        return self._whole(key, self.raw(key), low, high)

    def _whole(self, key: str, value: Any, low: int, high: int) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise self.fail(key, f"must be a whole number from {low} to {high}, not {value!r}")
        return value

    def number(self, key: str, *, low: float = -1e9, high: float = 1e9) -> float:
        """Return a number within bounds; `1e-06`, text for YAML 1.1, counts as one."""
        value = self.raw(key)
        try:
            result = float(value) if not isinstance(value, bool) else float("nan")
        except (TypeError, ValueError):
            result = float("nan")
        if not low <= result <= high:
            raise self.fail(key, f"must be a number from {low} to {high}, not {value!r}")
        return result

    def optional_number(self, key: str) -> float | None:
        """Return a number, or None where the value is null."""
        return self.number(key) if self.raw(key) is not None else None

    def text(self, key: str) -> str:
        """Return a string."""
        value = self.raw(key)
        if not isinstance(value, str):
            raise self.fail(key, f"must be text, not {value!r}")
        return value

    def boolean(self, key: str) -> bool:
        """Return true or false."""
        value = self.raw(key)
        if not isinstance(value, bool):
            raise self.fail(key, f"must be true or false, not {value!r}")
        return value

    def integers(self, key: str, *, low: int = 1, high: int = 1 << 16) -> tuple[int, ...]:
        """Return a list of whole numbers."""
        value = self.raw(key)
        if not isinstance(value, list) or not 1 <= len(value) <= 64:
            raise self.fail(key, "must be a list of whole numbers")
        return tuple(self._whole(key, self._document.resolve(item), low, high) for item in value)

    def integer_lists(self, key: str) -> tuple[tuple[int, ...], ...]:
        """Return a list of lists of whole numbers."""
        value = self.raw(key)
        if not isinstance(value, list) or not all(isinstance(row, list) for row in value):
            raise self.fail(key, "must be a list of lists of whole numbers")
        return tuple(tuple(self._whole(key, item, 1, 1 << 16) for item in row) for row in value)

    def finish(self, *, ignore: Iterable[str] = ()) -> None:
        """Refuse keys that nothing above took; `ignore` names those that only train."""
        unknown = sorted(set(self._values) - self._taken - set(ignore))
        if unknown:
            raise self.fail(unknown[0], "is not known to this version")
