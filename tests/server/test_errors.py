"""The one table of errors is whole."""

from __future__ import annotations

from antiphon.engine import errors as engine_errors
from antiphon.engine.errors import AntiphonError
from antiphon.engine.voice import quality
from antiphon.server import errors as server_errors
from antiphon.server.errors import OUTCOMES


def codes() -> set[str]:
    """Of every error class that a request can meet."""
    found = set()
    for module in (engine_errors, server_errors, quality):
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, AntiphonError):
                found.add(value.code)
    return found


def test_every_error_has_an_outcome_and_every_outcome_an_error() -> None:
    assert set(OUTCOMES) == codes()


def test_outcomes_are_what_the_standards_allow() -> None:
    for code, outcome in OUTCOMES.items():
        assert 400 <= outcome.http_status < 600, code
        assert outcome.close_code in (1007, 1008, 1009, 1011, 1013), code
