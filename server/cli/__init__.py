"""The command line: `antiphon serve|say|voices|verify|doctor`.

Nothing heavy is imported here: `antiphon --help` must answer at once, so each command imports what
it needs when it runs.
"""

from __future__ import annotations

import os

_NO_TELEMETRY = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "DO_NOT_TRACK": "1",
}


def stay_offline() -> None:
    """Switch off every look-up and usage report of the libraries that read these variables.

    They read them when they are imported, so this comes first.
    """
    os.environ.update(_NO_TELEMETRY)


def main() -> None:
    """Entry point of the `antiphon` command."""
    stay_offline()
    from antiphon.server.cli.app import run

    run()
