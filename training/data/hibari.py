"""Teacher: hibari-tts (Apache-2.0), asked for its spectral envelopes rather than for sound.

Its graph predicts, per 12.5 ms frame, a harmonic envelope, a noise envelope and F0. With those in
hand F0, formants, tilt and breathiness can be changed before synthesis, which makes virtual
speakers, and the phase of every harmonic can be tied to the F0 track at 50 Hz the same way HiFT's
source module ties it. A vocoder trained on such audio can match waveforms, not only magnitudes.
"""

import importlib.resources
import json
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime

from antiphon.training.data.phones import PHONES, Word, base
from antiphon.training.data.sentences import VOWELS
from antiphon.training.data.vocabulary import words

Array = npt.NDArray[np.float32]

FRAME_S: Final = 0.0125
DURATION_FRAMES: Final = 2
"""The graph's durations count 25 ms, two envelope frames."""
_DURATIONS: Final = "/Cast_32_output_0"
"""Internal tensor of the 0.2.1 graph that holds one duration per input symbol."""

_SYMBOLS: Final[dict[str, str]] = dict(
    zip(
        PHONES[:-1],
        words("ɑ æ ʌ ɔ W I b ʧ d ð ɛ ɜɹ A f ɡ h ɪ i ʤ k l m n ŋ O Y p ɹ s ʃ t θ ʊ u v w j z ʒ"),
        strict=True,
    )
)
_STRESS: Final = {"1": "ˈ", "2": "ˌ", "0": ""}


@dataclass(frozen=True)
class Symbols:
    """The teacher's spelling of a sentence and which phone each symbol belongs to."""

    text: str
    owner: tuple[int, ...]
    """Per symbol: index of the phone in the sentence, or -1 for spaces and punctuation."""


@dataclass(frozen=True)
class Envelopes:
    """What the teacher predicts for one sentence.

    `harmonic`, `phase`, `noise`, `residual`: (frames, 601) natural-log magnitudes (`phase` in
    radians) at 12.5 ms; `f0`: (frames,) Hz, 0 where unvoiced; `durations`: (symbols + 2,) frames
    of each symbol, with the leading and the trailing pad.
    """

    harmonic: Array
    phase: Array
    noise: Array
    residual: Array
    f0: Array
    durations: npt.NDArray[np.int64]

    def quiet(self) -> npt.NDArray[np.bool_]:
        """(frames,) True where the energy is 56 dB or more below the loudest frame."""
        power = np.exp(2 * np.minimum(self.harmonic, 7.0)) + np.exp(2 * np.minimum(self.noise, 7.0))
        energy = power.sum(axis=1)
        return np.asarray(energy < energy.max() * 10**-5.6)


def spell(spoken: tuple[Word, ...]) -> Symbols:
    """ARPABET to the teacher's symbols, one to one, so that it says exactly the LM's text."""
    text: list[str] = []
    owner: list[int] = []
    index = 0
    previous = ""
    for position, word in enumerate(spoken):
        if position:
            text.append(" ")
            owner.append(-1)
        for place, phone in enumerate(word.phones):
            following = word.phones[place + 1] if place + 1 < len(word.phones) else ""
            symbols = _phone_symbols(phone, previous if place else "", following)
            text += symbols
            owner += [index] * len(symbols)
            index += 1
            previous = phone
        if word.punctuation:
            text.append(word.punctuation)
            owner.append(-1)
    return Symbols("".join(text), tuple(owner))


def _phone_symbols(phone: str, previous: str, following: str) -> list[str]:
    plain = base(phone)
    if plain not in VOWELS:
        after_vowel = base(previous) in VOWELS or previous == "R"
        unstressed_next = following.endswith("0")
        if plain == "T" and after_vowel and unstressed_next:
            return ["T"]
        return list(_SYMBOLS[plain])
    if phone.endswith("0") and plain in ("AH", "ER"):
        return list({"AH": "ə", "ER": "əɹ"}[plain])
    return [*_STRESS[phone[-1]], *_SYMBOLS[plain]]


class Hibari:
    """The teacher's network; one sentence at a time, one thread."""

    def __init__(self) -> None:
        assets = importlib.resources.files("hibari") / "assets"
        graph = onnx.load_from_string((assets / "hibari.onnx").read_bytes())
        graph.graph.output.append(onnx.helper.make_empty_tensor_value_info(_DURATIONS))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            graph.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self._ids: dict[str, int] = json.loads((assets / "vocab.json").read_text("utf-8"))

    def envelopes(self, symbols: str, speed: float) -> Envelopes:
        """Spectra, F0 and durations of a sentence. `speed` 1.0 is the teacher's own pace."""
        ids = np.array([[0, *(self._ids[s] for s in symbols), 0]], np.int64)
        outputs = self._session.run(None, {"ids": ids, "speed": np.array([speed], np.float32)})
        harmonic, theta, noise, residual = (np.ascontiguousarray(x[0].T) for x in outputs[:4])
        f0 = outputs[5][0]
        return Envelopes(
            harmonic=harmonic,
            phase=np.pi * np.tanh(theta),
            noise=noise,
            residual=residual,
            f0=np.where(f0 > 40.0, f0, 0.0).astype(np.float32),
            durations=np.asarray(outputs[6]).reshape(-1) * DURATION_FRAMES,
        )
