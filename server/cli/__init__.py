"""The command line: `antiphon serve|say|voices|verify|doctor`.

Nothing heavy is imported here: `antiphon --help` must answer at once, so each command imports what
it needs when it runs.
"""

from __future__ import annotations


def main() -> None:
    """Entry point of the `antiphon` command."""
    from antiphon.server.cli.app import run

    run()
