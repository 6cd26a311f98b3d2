"""A server of one's own for the length of a command: a subprocess on a free loopback port."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

from antiphon.engine.errors import AntiphonError
from antiphon.server.cli.console import progress

START_TIMEOUT_S = 300.0
"""Loading a large checkpoint from a slow disk and warming it up."""
_STOP_TIMEOUT_S = 10.0


class ServerDidNotStart(AntiphonError):
    """The subprocess ended, or did not get ready in time."""

    code = "server_did_not_start"


@contextmanager
def local_server(
    options: Sequence[str] = (), *, quiet: bool = False, timeout_s: float = START_TIMEOUT_S
) -> Iterator[dict[str, Any]]:
    """Run `antiphon serve` with `options` and yield what it said when it was ready.

    The subprocess ends when its standard input closes, so it cannot outlive this process.

    Raises:
        ServerDidNotStart: with the subprocess's own last line.
    """
    command = [sys.executable, "-m", "antiphon.server.cli", "serve", "--port", "0", "--json"]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [*command, "--exit-with-parent", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            with progress("Starting a server", quiet=quiet):
                ready = _wait_until_ready(process, log, timeout_s)
            yield ready
        finally:
            _stop(process)


def _wait_until_ready(
    process: subprocess.Popen[str], log: IO[str], timeout_s: float
) -> dict[str, Any]:
    assert process.stdout is not None
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    stdout = process.stdout
    threading.Thread(target=lambda: lines.put(stdout.readline()), daemon=True).start()
    try:
        line = lines.get(timeout=timeout_s)
    except queue.Empty:
        raise ServerDidNotStart(
            f"The server was not ready within {timeout_s:g} seconds.", limit=timeout_s
        ) from None
    event: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
    if "url" in event:
        return event
    error = event.get("error") or {}
    raise ServerDidNotStart(
        error.get("message") or _last_line(log) or "The server ended before it was ready.",
        field=error.get("field"),
    )


def _last_line(log: IO[str]) -> str:
    log.seek(0)
    lines = [line.strip() for line in log.read().splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _stop(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(_STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    assert process.stdout is not None
    process.stdout.close()
