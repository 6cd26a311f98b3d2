"""`antiphon serve`: the server in the foreground."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from antiphon.server.cli.console import err, print_json
from antiphon.server.config import load_config


def run_server(
    path: Path | None,
    host: str | None,
    port: int | None,
    model_dir: Path | None,
    *,
    as_json: bool,
    exit_with_parent: bool,
) -> None:
    """Serve until a signal comes.

    Raises:
        AntiphonError: the configuration cannot work, or something it names cannot be loaded.
    """
    config = load_config(path, overrides=_overrides(host, port), model_dir=model_dir)
    if exit_with_parent:
        threading.Thread(target=_stop_at_end_of_input, daemon=True).start()
    from antiphon.server.run import Server, serve

    def on_ready(server: Server) -> None:
        # What is spoken with where a request names nobody; the configuration may leave it open.
        model, voice = server.house.engines.default_voice
        if as_json:
            print_json({"url": server.url, "model": model, "voice": voice})
        else:
            _tell(server.url, model, voice)

    serve(config, on_ready=on_ready)


def _overrides(host: str | None, port: int | None) -> dict[str, Any]:
    overrides: dict[str, Any] = {}
    if host is not None:
        overrides["server.host"] = host
    if port is not None:
        overrides["server.port"] = port
    return overrides


def _stop_at_end_of_input() -> None:
    """End as a terminal's interrupt would, once whoever started this process has gone."""
    sys.stdin.buffer.read()
    os.kill(os.getpid(), signal.SIGTERM)


def _tell(url: str, model: str, voice: str | None) -> None:
    if voice is None:
        err.print(f"Serving {model} at {url}. It has no voice yet; make one:\n", markup=False)
        err.print(
            f"  antiphon voices add FILE --name NAME --consent-by WHO --url {url}", markup=False
        )
    else:
        err.print(f"Serving {model} at {url}, voice {voice}. Talk to it:\n", markup=False)
        err.print(f'  antiphon say "Hello there." --url {url}', markup=False)
        asked = {"model": model, "voice": voice, "input": "Hello there.", "response_format": "wav"}
        body = json.dumps(asked, ensure_ascii=False, separators=(",", ":"))
        err.print(
            f"  curl {url}/v1/audio/speech -H 'Content-Type: application/json' -o hello.wav \\\n"
            f"    -d {shlex.quote(body)}",
            markup=False,
        )
    err.print(f"  {url}/ is a page to hear it in", markup=False)
    socket = url.replace("http", "ws", 1)
    err.print(f"  WebSocket {socket}/v1/audio/speech/stream (docs/protocol.md)\n", markup=False)
    err.print("Ctrl-C stops it.")
