"""`cosyvoice*.yaml` read as data.

The published files are written for HyperPyYAML, where `!new:` builds an object, `!name:` names a
function, `!apply:` calls one and `!ref` refers to another key, with arithmetic. Here a tag becomes
a `Tagged` value and a reference is resolved when it is asked for: nothing is imported or called.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from antiphon.engine.errors import CheckpointError

MAX_BYTES: Final = 1 << 20
"""Published files have about 8 kB; a larger one is not what it claims to be."""
MAX_DEPTH: Final = 32
TAG_KINDS: Final = ("new", "name", "apply", "module", "copy")

_REFERENCE = re.compile(r"<([A-Za-z_][A-Za-z0-9_.]*)>")
_OPERATORS: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


@dataclass(frozen=True, slots=True)
class Tagged:
    """A value under `!new:`, `!name:` or `!apply:`, with its arguments as written."""

    kind: str
    target: str
    """Dotted name as written; a label, never looked up."""
    arguments: Any

    @property
    def class_name(self) -> str:
        """Last part of the dotted name."""
        return self.target.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class Reference:
    """An unresolved `!ref`."""

    expression: str


class _Loader(yaml.SafeLoader):
    """`SafeLoader` that knows the tags and refuses aliases.

    No published file has aliases, and without them a document cannot grow beyond its own size.
    """

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("YAML aliases are not accepted")
        return super().compose_node(parent, index)


def _value(loader: Any, node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_scalar(node)


def _tag_constructor(kind: str) -> Callable[[Any, str, yaml.Node], Tagged]:
    return lambda loader, suffix, node: Tagged(kind, suffix, _value(loader, node))


for _kind in TAG_KINDS:
    _Loader.add_multi_constructor(f"!{_kind}:", _tag_constructor(_kind))
_Loader.add_constructor("!ref", lambda loader, node: Reference(str(_value(loader, node))))
_Loader.add_constructor("!tuple", _value)


class Document:
    """One parsed file; `resolve` follows references."""

    def __init__(self, path: Path, root: Mapping[str, Any]) -> None:
        self.path = path
        self.root = root

    def fail(self, message: str) -> CheckpointError:
        """Return the error for this file."""
        return CheckpointError(f"{self.path.name}: {message}", field=self.path.name)

    def resolve(self, value: Any, _following: tuple[str, ...] = ()) -> Any:
        """Return a value with the references at its top resolved."""
        while isinstance(value, Reference):
            value, _following = self._evaluate(value.expression, _following), _following
        return value

    def _look_up(self, name: str, following: tuple[str, ...]) -> Any:
        if name in following or len(following) > MAX_DEPTH:
            raise self.fail(f"!ref <{name}> refers to itself")
        value: Any = self.root
        for part in name.split("."):
            if isinstance(value, Tagged):
                value = value.arguments
            if not isinstance(value, Mapping) or part not in value:
                raise self.fail(f"!ref <{name}> names a key that is not there")
            value = value[part]
        return self.resolve(value, (*following, name))

    def _evaluate(self, expression: str, following: tuple[str, ...]) -> Any:
        text = expression.strip()
        whole = _REFERENCE.fullmatch(text)
        if whole:
            return self._look_up(whole[1], following)
        values: dict[str, Any] = {}

        def placeholder(match: re.Match[str]) -> str:
            name = f"_{len(values)}"
            values[name] = self._look_up(match[1], following)
            return name

        replaced = _REFERENCE.sub(placeholder, text)
        if not all(isinstance(value, int | float) for value in values.values()):
            # A path such as `<folder>/file`: the references are put in as text.
            return _REFERENCE.sub(lambda match: str(self._look_up(match[1], following)), text)
        try:
            return _arithmetic(ast.parse(replaced, mode="eval").body, values)
        except (SyntaxError, ValueError, ZeroDivisionError, OverflowError) as error:
            raise self.fail(f"cannot evaluate !ref {expression!r}") from error


def _arithmetic(node: ast.expr, values: Mapping[str, float]) -> float:
    """Evaluate + - * / // % and a sign over numbers. No powers: they can grow without bound."""
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _arithmetic(node.left, values), _arithmetic(node.right, values)
        result: float = _OPERATORS[type(node.op)](left, right)
        return result
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_arithmetic(node.operand, values)
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value  # type: ignore[return-value]
    if isinstance(node, ast.Name) and node.id in values:
        return values[node.id]
    raise ValueError(ast.dump(node))


def load_document(path: Path) -> Document:
    """Parse a file.

    Raises:
        CheckpointError: unreadable, too large, not YAML, an unknown tag, no mapping at the top.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise CheckpointError(
                f"{path.name} is larger than any published one.", field=path.name, limit=MAX_BYTES
            )
        root = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path.name} cannot be read: {error}", field=path.name) from error
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        detail = " ".join(str(error).split())[:300]
        raise CheckpointError(f"{path.name} cannot be parsed: {detail}", field=path.name) from error
    if not isinstance(root, dict) or not all(isinstance(key, str) for key in root):
        raise CheckpointError(f"{path.name} holds no mapping of names.", field=path.name)
    return Document(path, root)
