"""A checkpoint behind a real server, for the voice gate: text in pieces in, speech out."""

from __future__ import annotations

import asyncio
import base64
import io
import wave
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import numpy as np
import yaml

from antiphon.engine.hops import LARGEST_HOP
from antiphon.server.cli.conversation import Turn, speak
from antiphon.server.cli.local_server import local_server
from antiphon.training.data.corpus import Utterance
from bench import voice_measures as measure
from bench.processes import descendants_cpu_s
from bench.voice_links import Link

WORDS_PER_SECOND = 20.0


@dataclass(frozen=True)
class Said:
    """One sentence as it came out of the server."""

    samples: measure.Samples
    borders: list[int]
    """Where one message ended and the next began."""
    turn: Turn


@contextmanager
def voice_server(config: Path, model: Path) -> Iterator[str]:
    """Serve a checkpoint as a deployment's configuration says, with a folder for new voices."""
    with TemporaryDirectory() as folder:
        settings: dict[str, Any] = yaml.safe_load(config.read_text(encoding="utf-8"))
        settings["voices"] = {"folder": str(Path(folder) / "voices")}
        path = Path(folder) / "gate.yaml"
        path.write_text(yaml.safe_dump(settings), encoding="utf-8")
        with local_server(["--config", str(path), "--model", str(model)], quiet=True) as ready:
            yield ready["url"]


def say(
    url: str, text: str, voice: str, seed: int = 7, *, words_per_second: float = 0.0, **config: int
) -> Said:
    """Speak one text over the WebSocket; `config` has further fields of `session.config`."""
    wanted = {"voice": voice, "seed": seed, **config}
    turn = asyncio.run(speak(url, text, wanted, words_per_second=words_per_second))
    pieces = [np.frombuffer(message, "<i2") for message in turn.messages]
    if not pieces:
        return Said(np.zeros(4800, np.float32), [], turn)
    borders = np.cumsum([len(piece) for piece in pieces[:-1]]).astype(int).tolist()
    return Said((np.concatenate(pieces) / 32768).astype(np.float32), borders, turn)


def measure_text(url: str, hop: int, sentences: Sequence[str], voices: Sequence[str]) -> Link:
    """Text in pieces at one first hop; with the largest, all at once and in one piece."""
    whole = hop == LARGEST_HOP
    link = Link("text, whole" if whole else f"text, first hop {hop}")
    for number, sentence in enumerate(sentences):
        before = descendants_cpu_s()
        said = say(
            url,
            sentence,
            voices[number % len(voices)],
            number,
            words_per_second=0.0 if whole else WORDS_PER_SECOND,
            first_hop=hop,
            max_hop=max(25, hop),
        )
        link.used_s += descendants_cpu_s() - before
        if said.turn.first_packet_ms is not None:
            link.first_ms.append(said.turn.first_packet_ms)
        link.clicks += measure.click_decibels(said.samples, said.borders)
        link.hear(sentence, said.samples)
    return link


def enrol(url: str, name: str, spoken: Utterance) -> None:
    """Make a voice of one utterance of a synthetic speaker.

    Raises:
        httpx.HTTPStatusError: the server refused it.
    """
    body = {
        "name": name,
        "audio": base64.b64encode(wav(spoken.samples)).decode(),
        "transcript": spoken.spoken,
        "language": "en",
        "consent": {"given_by": "nobody: a synthetic speaker", "scope": ["speech"]},
    }
    with httpx.Client(trust_env=False, timeout=120) as http:
        http.post(f"{url}/v1/voices", json=body).raise_for_status()


def wav(samples: measure.Samples) -> bytes:
    """(samples,) float32 at 24 kHz as a 16-bit file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(measure.RATE_HZ)
        writer.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())
    return file.getvalue()
