"""Where configuration values come from: a YAML file, the environment, the command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from antiphon.engine.errors import InvalidConfiguration

ENVIRONMENT_PREFIX = "ANTIPHON__"


def merged(
    path: Path | None,
    environment: Mapping[str, str],
    overrides: Mapping[str, Any],
    model_dir: Path | None = None,
) -> dict[str, Any]:
    """Values of a file, overridden by the environment, overridden by dotted paths.

    A `model_dir` takes the place of the one in the first CosyVoice engine, whose other settings
    stay; where there is no such engine, it becomes the only one.

    Raises:
        InvalidConfiguration: unreadable file or value, or a path that leads nowhere.
    """
    values = _read(path) if path is not None else {}
    for name, text in sorted(environment.items()):
        if name.startswith(ENVIRONMENT_PREFIX):
            dotted = name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")
            _assign(values, dotted, _parse(text, name))
    for dotted, value in overrides.items():
        _assign(values, dotted, value)
    if model_dir is not None:
        _serve_model(values, model_dir)
    return values


def _serve_model(values: dict[str, Any], model_dir: Path) -> None:
    name = model_dir.resolve().name
    engines = values.get("engines")
    for engine in engines if isinstance(engines, list) else []:
        if isinstance(engine, dict) and engine.get("kind") == "cosyvoice":
            engine["model_dir"] = model_dir
            values["model"] = engine.setdefault("name", name)
            return
    values["engines"] = [{"kind": "cosyvoice", "name": name, "model_dir": model_dir}]
    values |= {"model": name, "voice": None}


def _read(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        reason = error.strerror or "it cannot be opened"
        raise InvalidConfiguration(f"The configuration {path} cannot be read: {reason}.") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidConfiguration(f"The configuration {path} is not YAML: {error}.") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise InvalidConfiguration(f"The configuration {path} is not a mapping of keys to values.")
    return document


def _parse(text: str, name: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidConfiguration(
            f"The environment variable {name} is not a YAML value.", field=name
        ) from error


def _assign(values: dict[str, Any], dotted: str, value: Any) -> None:
    """Set `values` at a dotted path; numbers index into lists that are there."""
    at: Any = values
    *parents, last = dotted.split(".")
    for key in parents:
        if isinstance(at, list):
            at = at[_index(at, key, dotted)]
        elif isinstance(at, dict):
            at = at.setdefault(key, {})
        if not isinstance(at, dict | list):
            raise InvalidConfiguration(f"{dotted} does not lead to a value.", field=dotted)
    if isinstance(at, list):
        at[_index(at, last, dotted)] = value
    else:
        at[last] = value


def _index(items: list[Any], key: str, dotted: str) -> int:
    if not key.isdecimal() or int(key) >= len(items):
        raise InvalidConfiguration(f"{dotted}: there is no item {key}.", field=dotted)
    return int(key)
