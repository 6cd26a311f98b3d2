"""Throws damaged files at everything that reads a file of a stranger, for as long as it is told to.

Audio files, `.pt` weights and stored voices, `cosyvoice*.yaml`, ONNX networks and `.voice` files
are mutated; each must load or be refused by an error of ours, within 10 s and 1 GiB. A worker
process tries them, so that a crash or a hang of a library is a finding too. What failed is kept
in a folder, from which `tests/test_fuzz_corpus.py` replays it.

    python -m bench.fuzz --seconds 60 --seed 1 --corpus tests/data/fuzz
"""

from __future__ import annotations

import argparse
import hashlib
import io
import multiprocessing
import random
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from antiphon.engine.errors import AntiphonError
from bench.report import Row, publish, switches

PATIENCE_S = 10.0
START_S = 120.0
MEMORY_BYTES = 1 << 30
ROUND = 2_000
"""Cases of one worker: its memory is measured from its start."""
RATE = 16_000

Load = Callable[[Path], object]


@dataclass(frozen=True, slots=True)
class Target:
    """One kind of file."""

    name: str
    file: str
    """Name under which it is read."""
    load: Load
    seeds: list[bytes] = field(default_factory=list)


def audio_seeds() -> list[bytes]:
    """Half a second of a buzzing voice in every container that is read."""
    t = np.arange(RATE // 2) / RATE
    orders = np.arange(1, 12)[:, None]
    buzz = (np.sin(2 * np.pi * 120 * orders * t) / orders).sum(axis=0)
    samples = (0.2 * buzz * (1 + np.sin(2 * np.pi * 4 * t))).astype(np.float32)
    kinds = [
        ("pcm_s16le", "wav"), ("pcm_f32le", "wav"), ("flac", "flac"), ("libmp3lame", "mp3"),
        ("aac", "adts"), ("libopus", "ogg"), ("aac", "mp4"), ("libopus", "webm"),
    ]  # fmt: skip
    return [_encoded(samples, codec, container) for codec, container in kinds]


def _encoded(samples: NDArray[np.float32], codec: str, kind: str) -> bytes:
    sink = io.BytesIO()
    with av.open(sink, "w", format=kind) as container:
        stream = container.add_stream(codec, rate=RATE)
        assert isinstance(stream, av.AudioStream)
        stream.layout = "mono"
        frame = av.AudioFrame.from_ndarray(samples[None], format="flt", layout="mono")
        frame.sample_rate = RATE
        resampler = av.AudioResampler(format=stream.format, layout="mono", rate=RATE)
        for piece in (*resampler.resample(frame), *resampler.resample(None)):
            container.mux(stream.encode(piece))
        container.mux(stream.encode(None))
    return sink.getvalue()


def targets(model: Path) -> dict[str, Target]:
    """Everything that reads files, with good ones to begin from. `model` is any checkpoint."""
    import torch

    from antiphon.engine.audio_file import decode_audio
    from antiphon.engine.checkpoint import open_checkpoint
    from antiphon.engine.checkpoint.voices import load_voices
    from antiphon.engine.checkpoint.weights import load_state_dict
    from antiphon.engine.voice.record import Voice
    from antiphon.engine.voice.reference import ReferenceFeatures, SpeakerEncoder
    from antiphon.engine.voice.voice_file import load_voice, voice_to_bytes

    def saved(value: object, **options: bool) -> bytes:
        sink = io.BytesIO()
        torch.save(value, sink, **options)
        return sink.getvalue()

    def stored(path: Path) -> object:
        return load_voices(path, speech_codes=600, text_tokens=600, mel_bins=80, frames_per_token=2)

    def opened(path: Path) -> object:
        checkpoint = open_checkpoint(path.parent)
        if int(checkpoint.generation) == 1:
            return checkpoint.text_speech_lm_config, checkpoint.regulated_flow_config
        return checkpoint.flow_config, checkpoint.hift_config, checkpoint.mel_config

    def heard(path: Path) -> object:
        return SpeakerEncoder(path).embedding(np.zeros(RATE, np.float32))

    yaml = next(model.glob("cosyvoice*.yaml"))
    weights = {"layer.weight_g": torch.ones(4, 1), "layer.weight_v": torch.ones(4, 3), "step": 3}
    person = {
        "embedding": torch.ones(1, 192),
        "prompt_text": torch.ones(1, 5, dtype=torch.int32),
        "flow_prompt_speech_token": torch.ones(1, 9, dtype=torch.int32),
        "prompt_speech_feat": torch.zeros(1, 18, 80),
    }
    features = ReferenceFeatures(
        np.arange(9), np.zeros((18, 80), np.float32), np.ones(192, np.float32)
    )
    voice = Voice("ada", features, "model", "0" * 32, None, transcript="Hello.")
    made = [
        Target("audio", "upload.bin", lambda path: decode_audio(path.read_bytes()), audio_seeds()),
        Target("weights", "flow.pt", load_state_dict,
               [saved(weights), saved(weights, _use_new_zipfile_serialization=False)]),
        Target("stored voices", "spk2info.pt", stored, [saved({"ada": person})]),
        Target("yaml", yaml.name, opened, [yaml.read_bytes()]),
        Target("onnx", "campplus.onnx", heard, [(model / "campplus.onnx").read_bytes()]),
        Target("voice file", "ada.voice", load_voice, [voice_to_bytes(voice)]),
    ]  # fmt: skip
    return {target.name: target for target in made}


def mutated(seed: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """One to eight changes of a file: bytes, fields, blocks, length, other files' parts."""
    data = bytearray(seed)
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        # Headers are where lengths and types stand.
        end = len(data) if chance.random() < 0.5 else min(len(data), 256)
        at = chance.randrange(end) if end else 0
        match chance.randrange(8):
            case 0:
                data[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                if data:
                    data[min(at, len(data) - 1)] ^= 1 << chance.randrange(8)
            case 2:
                value = chance.choice((0, 1, 0x7FFFFFFF, 0xFFFFFFFF, 0x80000000, 1 << 24))
                data[at : at + 4] = value.to_bytes(4, chance.choice(("little", "big")))
            case 3:
                del data[at:]
            case 4:
                del data[at : at + chance.randrange(1, 64)]
            case 5:
                data[at:at] = chance.randbytes(chance.randrange(1, 64))
            case 6:
                size = chance.randrange(1, 1024)
                data[at:at] = data[at : at + size] * chance.randrange(1, 4)
            case _:
                other = chance.choice(others)
                start = chance.randrange(len(other))
                data[at : at + 64] = other[start : start + 64]
    return bytes(data)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one case. `failure` is empty where all is well."""

    loaded: bool
    failure: str = ""


def attempt(target: Target, data: bytes, folder: Path) -> Outcome:
    """Load one file; anything but success and an error of ours is a failure."""
    path = folder / target.file
    path.write_bytes(data)
    started = time.monotonic()
    try:
        target.load(path)
        outcome = Outcome(True)
    except AntiphonError:
        outcome = Outcome(False)
    except Exception as error:
        outcome = Outcome(False, type(error).__name__)
    seconds = time.monotonic() - started
    return Outcome(False, f"{seconds:.0f} s") if seconds > PATIENCE_S else outcome


def _work(model: Path, seed: int, count: int, folder: Path, channel: Connection) -> None:
    """Try cases one after the other; the parent sees each before and after it is tried."""
    chosen = targets(model)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(count):
        chance = random.Random(f"{seed}/{number}")
        target = chance.choice(list(chosen.values()))
        everything = [each for other in chosen.values() for each in other.seeds]
        data = mutated(chance.choice(target.seeds), everything, chance)
        channel.send((target.name, data))
        outcome = attempt(target, data, folder)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
        if grown > MEMORY_BYTES:
            outcome = Outcome(False, f"{grown >> 20} MiB")
            before += grown >> 10
        channel.send(outcome)
    channel.send(None)


@dataclass(slots=True)
class Tally:
    """Counts by kind of file."""

    tried: Counter[str] = field(default_factory=Counter)
    loaded: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, str, bytes]] = field(default_factory=list)


def watch(model: Path, seed: int, until: float, tally: Tally) -> None:
    """Run one worker to the end of its round, of the time, or of itself."""
    ours, theirs = multiprocessing.Pipe()
    with tempfile.TemporaryDirectory() as folder:
        arguments = (model, seed, ROUND, Path(folder), theirs)
        worker = multiprocessing.get_context("spawn").Process(target=_work, args=arguments)
        worker.start()
        theirs.close()
        name, data = "", b""
        try:
            while time.monotonic() < until or not name:
                if not ours.poll(2 * PATIENCE_S if name else START_S):
                    tally.failures.append((name, "hang", data))
                    return
                message = ours.recv()
                if message is None:
                    return
                if isinstance(message, Outcome):
                    tally.tried[name] += 1
                    tally.loaded[name] += message.loaded
                    if message.failure:
                        tally.failures.append((name, message.failure, data))
                else:
                    name, data = message
        except EOFError:
            tally.failures.append((name, "crash", data))
        finally:
            worker.kill()
            worker.join()


def keep(corpus: Path, failures: list[tuple[str, str, bytes]]) -> Mapping[str, str]:
    """Write failing files; returns their names with what was wrong."""
    corpus.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, what, data in failures:
        file = f"{name.replace(' ', '_')}-{hashlib.sha256(data).hexdigest()[:12]}.bin"
        (corpus / file).write_bytes(data)
        found[file] = what
    return found


def main() -> None:
    """Entry point."""
    parser = switches(__doc__ or "")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", type=Path, default=Path("tests/data/golden/tiny-cosyvoice3"))
    parser.add_argument("--corpus", type=Path, default=Path("tests/data/fuzz"))
    arguments: argparse.Namespace = parser.parse_args()
    tally, seed = Tally(), 1000 * arguments.seed
    until = time.monotonic() + (20 if arguments.quick else arguments.seconds)
    while time.monotonic() < until:
        watch(arguments.model, seed, until, tally)
        seed += 1
    for file, what in keep(arguments.corpus, tally.failures).items():
        print(f"{file}: {what}")
    failed = Counter(name for name, _, _ in tally.failures)
    rows: list[Row] = [
        {"file": name, "tried": count, "loaded": tally.loaded[name], "failed": failed[name]}
        for name, count in sorted(tally.tried.items())
    ]
    publish(arguments, f"Damaged files, seed {arguments.seed}", rows)


if __name__ == "__main__":
    main()
