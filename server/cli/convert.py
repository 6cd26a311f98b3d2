"""`antiphon convert`: a recording said again in another voice, written to a file."""

from __future__ import annotations

import secrets
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from antiphon.engine.audio_file import decode_audio
from antiphon.engine.errors import InvalidConfiguration, InvalidRequest
from antiphon.server.audio.plain import wav_header
from antiphon.server.cli.console import out, print_json, progress
from antiphon.server.cli.conversation import ServerRefused, ServerUnreachable
from antiphon.server.cli.say import serving
from antiphon.server.cli.verify import detect
from antiphon.server.cli.voices import error_of, http_address

TIMEOUT_S = 600.0
MAX_FILE_BYTES = 64 << 20
_PIECE = 1 << 14


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """What the command line asked for."""

    file: Path
    voice: str | None = None
    url: str | None = None
    model: str | None = None
    output: Path = Path("out.wav")
    format: str = "wav"
    sample_rate: int = 24_000
    speed: float = 1.0
    config: Path | None = None
    api_key: str | None = None
    as_json: bool = False


def run_convert(options: ConvertOptions) -> None:
    """Convert, write the file, and report.

    Raises:
        AntiphonError: nothing could be converted; no file is written then.
    """
    audio = _read(options.file)
    if not options.output.parent.is_dir():
        raise InvalidRequest(f"The folder {options.output.parent} does not exist.", field="output")
    with serving(options.url, options.model, options.config, quiet=options.as_json) as at:
        url, model = at
        with progress("Converting", quiet=options.as_json):
            content, first_s = _ask(options, url, model, audio)
    _write(options.output, content)
    decoded = decode_audio(options.output)
    with progress("Looking for the watermark", quiet=options.as_json):
        score = round(detect(options.output, options.config).score, 4)
    result = {
        "file": str(options.output),
        "voice": options.voice,
        "seconds": round(len(decoded.samples) / decoded.rate, 3),
        "first_packet_ms": round(1000 * first_s, 1),
        "watermark_score": score,
    }
    if options.as_json:
        print_json(result)
    else:
        for name, value in result.items():
            out.print(f"{name.replace('_', ' '):<17} {value}", markup=False)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            audio = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidRequest(f"The recording {path} cannot be read.", field="audio") from error
    if len(audio) > MAX_FILE_BYTES:
        raise InvalidRequest(
            f"The recording is larger than {MAX_FILE_BYTES} bytes.",
            field="audio",
            limit=MAX_FILE_BYTES,
        )
    return audio


def _ask(options: ConvertOptions, url: str, model: str | None, audio: bytes) -> tuple[bytes, float]:
    """Return the file's content and the seconds until its first bytes came."""
    # A WAV file that is streamed leaves its sizes open; here they can be filled in.
    as_wav = options.format == "wav"
    fields: dict[str, Any] = {
        "response_format": "pcm" if as_wav else options.format,
        "sample_rate": options.sample_rate,
        "speed": options.speed,
        "voice": options.voice,
        "model": model,
    }
    body, kind = form({k: str(v) for k, v in fields.items() if v is not None}, audio)
    request = urllib.request.Request(f"{http_address(url)}/v1/audio/convert", body, method="POST")
    request.add_header("Content-Type", kind)
    if options.api_key:
        request.add_header("Authorization", f"Bearer {options.api_key}")
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    started = time.monotonic()
    try:
        with opener.open(request, timeout=TIMEOUT_S) as answer:
            pieces = [answer.read1(_PIECE)]
            first_s = time.monotonic() - started
            while piece := answer.read(_PIECE):
                pieces.append(piece)
    except urllib.error.HTTPError as error:
        raise ServerRefused(error_of(error)) from error
    except OSError as error:
        raise ServerUnreachable(f"The server at {url} broke off.", field="url") from error
    content = b"".join(pieces)
    if as_wav:
        content = wav_header(options.sample_rate, len(content)) + content
    return content, first_s


def form(fields: dict[str, str], audio: bytes) -> tuple[bytes, str]:
    """Return a form with a file `audio`, and its content type."""
    border = f"antiphon{secrets.token_hex(16)}"
    parts = [
        f'--{border}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    file = f'--{border}\r\nContent-Disposition: form-data; name="audio"; filename="audio"\r\n\r\n'
    parts += [file.encode(), audio, f"\r\n--{border}--\r\n".encode()]
    return b"".join(parts), f"multipart/form-data; boundary={border}"


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        reason = error.strerror or "it cannot be opened"
        raise InvalidConfiguration(
            f"The file {path} cannot be written: {reason}.", field="output"
        ) from error
