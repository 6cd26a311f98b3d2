"""`antiphon verify`: does this file carry the watermark?"""

from __future__ import annotations

from pathlib import Path

from antiphon.engine.audio_file import decode_audio
from antiphon.engine.watermark.interface import Detection
from antiphon.server.cli.console import out, print_json, progress
from antiphon.server.config import load_config


def run_verify(file: Path, config: Path | None, *, as_json: bool) -> None:
    """Print the verdict on a file."""
    with progress("Looking for the watermark", quiet=as_json):
        found = detect(file, config)
    if as_json:
        spans = [[round(start, 3), round(end, 3)] for start, end in found.spans]
        print_json({"marked": found.marked, "score": round(found.score, 4), "spans": spans})
        return
    verdict = "carries the watermark" if found.marked else "carries no watermark"
    out.print(f"{file} {verdict} (score {found.score:.2f}).", markup=False)
    for start, end in found.spans:
        out.print(f"  {start:7.2f} s to {end:.2f} s")


def detect(file: Path, config: Path | None) -> Detection:
    """Look for the configured watermark in a file.

    Raises:
        InvalidRequest: the file cannot be read as audio.
        InvalidConfiguration, WatermarkUnavailable: there is nothing to look with.
    """
    section = load_config(config).watermark
    audio = decode_audio(file)
    from antiphon.server.loading import load_watermark

    return load_watermark(section).detect(audio.samples, audio.rate)
