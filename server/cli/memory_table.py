"""What the models take of a device's memory, and what is left, for `antiphon doctor`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from antiphon.engine.errors import AntiphonError, CheckpointError
from antiphon.server.cli.console import out
from antiphon.server.config import Config

PARTS = {
    "weights": "weights",
    "kv": "KV of the speech LM",
    "acoustic": "acoustic caches",
    "session": "… of them a session",
    "voice": "… of them a voice",
    "runtime": "runtime",
}
"""Sessions and voices share the acoustic caches: the most that one of each takes."""


def examine_memory(config: Config, model: Path | None = None) -> dict[str, Any]:
    """Return what all models take here, and what cards of usual sizes would have left.

    `model` is a directory to be looked at as well, as if it were served beside them.
    """
    from antiphon.engine.memory import CARDS_GIB
    from antiphon.server.memory import check_memory, memory_limit, models_memory

    try:
        here = models_memory(config, model)
        on_cards = {card: models_memory(config, model, card_gib=card) for card in CARDS_GIB}
    except CheckpointError:
        # What is wrong with a model directory stands in its own part of the report.
        return {"models": {}, "problem": None}
    except AntiphonError as error:
        return {"models": {}, "problem": error.message}
    problem = None
    try:
        check_memory(config)
    except AntiphonError as error:
        problem = error.message
    limit = memory_limit(config)
    return {
        "models": {name: _rounded(asdict(each)) for name, each in here.items()},
        "on_cards": {
            str(card): {name: _rounded(asdict(each)) for name, each in models.items()}
            for card, models in on_cards.items()
        },
        "limit_gib": round(limit, 2),
        "left_gib": round(limit - sum(each.total for each in here.values()), 2),
        "left_on_cards_gib": {
            str(card): round(card - sum(each.total for each in models.values()), 2)
            for card, models in on_cards.items()
        },
        "problem": problem,
    }


def print_memory(found: dict[str, Any]) -> None:
    """Print the table, one column for each size of card and one for this device."""
    if not found["models"]:
        return
    from rich.table import Table

    cards: dict[str, float] = found["left_on_cards_gib"]
    table = Table(title="memory in GiB", title_justify="left")
    table.add_column("on a card of", no_wrap=True)
    for card in (*cards, "here"):
        table.add_column(card, justify="right", no_wrap=True)
    for name, here in found["models"].items():
        table.add_row(name, style="bold")
        for part, words in PARTS.items():
            if here[part] is not None:
                values = [_gib(found["on_cards"][card][name][part]) for card in cards]
                table.add_row(f"  {words}", *values, _gib(here[part]))
    table.add_section()
    left = [*cards.values(), found["left_gib"]]
    table.add_row("left", *(_gib(each) if each >= 0 else f"[red]{each:.2f}" for each in left))
    table.add_row(f"of {_gib(found['limit_gib'])} here", style="dim")
    out.print(table)


def _rounded(parts: dict[str, float | None]) -> dict[str, float | None]:
    return {name: None if value is None else round(value, 3) for name, value in parts.items()}


def _gib(value: float) -> str:
    return f"{value:.2f}"
