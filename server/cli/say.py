"""`antiphon say`: a text in pieces, speech to a file, and what it was like."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from antiphon.engine.errors import InvalidConfiguration, InvalidRequest
from antiphon.engine.watermark.marked import FloatSamples
from antiphon.server.audio import AudioFormat, check_rate, parse_format
from antiphon.server.audio.messages import decode_messages
from antiphon.server.audio.plain import wav_header
from antiphon.server.audio.samples import to_pcm
from antiphon.server.cli.console import err, out, print_json, progress
from antiphon.server.cli.conversation import Turn, speak
from antiphon.server.cli.local_server import local_server
from antiphon.server.cli.player import open_player
from antiphon.server.cli.verify import detect
from antiphon.server.playback import Playback


@dataclass(frozen=True, slots=True)
class SayOptions:
    """What the command line asked for."""

    text: str
    url: str | None = None
    voice: str | None = None
    model: str | None = None
    words_per_second: float = 20.0
    output: Path = Path("out.wav")
    format: str = "pcm"
    sample_rate: int = 24000
    seed: int | None = None
    config: Path | None = None
    api_key: str | None = None
    play: bool = True
    as_json: bool = False


def run_say(options: SayOptions) -> None:
    """Speak, write the file, and report.

    Raises:
        AntiphonError: nothing could be spoken; no file is written then.
    """
    fmt = parse_format(options.format)
    check_rate(fmt, options.sample_rate)
    if not options.output.parent.is_dir():
        raise InvalidRequest(f"The folder {options.output.parent} does not exist.", field="output")
    with serving(options.url, options.model, options.config, quiet=options.as_json) as (url, model):
        turn = _converse(options, url, model, fmt)
    result = _write(options, fmt, turn)
    with progress("Looking for the watermark", quiet=options.as_json):
        result["watermark_score"] = _score(options, result["samples"])
    if options.as_json:
        print_json(result)
    else:
        _print(result, turn)


@contextmanager
def serving(
    url: str | None, model: str | None, config: Path | None, *, quiet: bool
) -> Iterator[tuple[str, str | None]]:
    """Address of the server to talk to (one is started where none is named), and the model there.

    Without `url`, `model` may also be the directory of a checkpoint.
    """
    if url is not None:
        yield url, model
        return
    arguments: list[str] = []
    if config is not None:
        arguments += ["--config", str(config)]
    if model is not None and Path(model).is_dir():
        arguments += ["--model", model]
        model = None
    with local_server(arguments, quiet=quiet) as ready:
        yield ready["url"], model


def _converse(options: SayOptions, url: str, model: str | None, fmt: AudioFormat) -> Turn:
    fields: dict[str, Any] = {"response_format": fmt.value, "sample_rate": options.sample_rate}
    optional = {"voice": options.voice, "model": model, "seed": options.seed}
    fields |= {name: value for name, value in optional.items() if value is not None}
    playable = options.play and not options.as_json and fmt is AudioFormat.PCM
    player = open_player(options.sample_rate) if playable else None
    try:
        with progress("Speaking", quiet=options.as_json):
            return asyncio.run(
                speak(
                    url,
                    options.text,
                    fields,
                    words_per_second=options.words_per_second,
                    api_key=options.api_key,
                    on_audio=player.play if player else None,
                )
            )
    finally:
        if player is not None:
            player.close()


def _write(options: SayOptions, fmt: AudioFormat, turn: Turn) -> dict[str, Any]:
    """Write the WAV file; say what is in it."""
    samples, rate = decode_messages(fmt, options.sample_rate, turn.messages)
    stated = turn.done.get("samples")
    if stated is not None and rate == options.sample_rate:
        samples = samples[:stated]  # the rest pads the last frame
    pcm = to_pcm(samples)
    try:
        options.output.write_bytes(wav_header(rate, len(pcm)) + pcm)
    except OSError as error:
        reason = error.strerror or "it cannot be opened"
        raise InvalidConfiguration(
            f"The file {options.output} cannot be written: {reason}.", field="output"
        ) from error
    first = turn.first_packet_ms
    return {
        "file": str(options.output),
        "voice": turn.started.get("voice", options.voice),
        "sample_rate": rate,
        "samples": len(samples),
        "first_packet_ms": None if first is None else round(first, 1),
        "rtf": turn.done.get("rtf"),
        "gaps": _gaps(turn, samples, rate).gaps,
        "finish_reason": turn.done.get("finish_reason"),
        "watermark_score": None,
    }


def _gaps(turn: Turn, samples: FloatSamples, rate: int) -> Playback:
    """Play the messages as they came, starting with the first."""
    heard = Playback()
    total = sum(map(len, turn.messages))
    for arrival, message in zip(turn.arrivals, turn.messages, strict=True):
        # Near enough for formats of variable bit rate; exact for the others.
        heard.heard(len(samples) / rate * len(message) / total, arrival)
    return heard


def _score(options: SayOptions, samples: int) -> float | None:
    """Watermark score of the file just written; None if there is nothing in it."""
    if samples == 0:
        return None
    return round(detect(options.output, options.config).score, 4)


def _print(result: dict[str, Any], turn: Turn) -> None:
    server_ms = turn.done.get("first_packet_ms")
    first = "–" if result["first_packet_ms"] is None else f"{result['first_packet_ms']:.0f} ms"
    if server_ms is not None:
        first += f"  (in the server {server_ms:.0f} ms)"
    rtf = "–" if result["rtf"] is None else f"{result['rtf']:.3f}"
    score = result["watermark_score"]
    watermark = turn.started.get("watermark", "unknown")
    rows = {
        "voice": f"{result['voice']}  ({turn.started.get('model', 'unknown model')})",
        "first packet": first,
        "real-time factor": rtf,
        "gaps": str(result["gaps"]),
        "speech": f"{result['samples'] / result['sample_rate']:.2f} s",
        "finished": str(result["finish_reason"]),
        "watermark": f"{watermark}, " + ("nothing to check" if score is None else f"{score:.2f}"),
        "file": result["file"],
    }
    for name, value in rows.items():
        out.print(f"{name:<17} {value}", markup=False)
    if result["samples"] == 0:
        err.print("The text has nothing that can be spoken.", style="yellow")
