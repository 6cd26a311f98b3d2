"""The acoustic model of `hibari-tts`: symbols in, samples and the times of the symbols out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
from hibari import dsp
from hibari.tts import ASSETS
from hibari.voices import VOICES
from numpy.typing import NDArray

from antiphon.engine.errors import CheckpointError, SynthesisFailed
from antiphon.engine.watermark.marked import FloatSamples

SAMPLE_RATE_HZ = 24000
_DURATIONS = "/Cast_32_output_0"
"""Inside the graph: frames of 25 ms that each id takes."""
_DURATION_SAMPLES = 600


@dataclass(frozen=True, slots=True, eq=False)
class Utterance:
    """One string, spoken."""

    samples: FloatSamples
    symbol_ends: NDArray[np.int64]
    """(symbols,) sample behind each symbol."""


class PresetModel:
    """Weights and alphabet of one voice. Any number of threads may speak with it at once."""

    def __init__(self, voice: str) -> None:
        """Load a voice that lies in the installed wheel.

        Raises:
            CheckpointError: the voice is not in the wheel, or its model cannot be read.
        """
        entry = VOICES.get(voice, {})
        if not entry.get("bundled"):
            raise CheckpointError(f"hibari-tts brings no voice {voice!r}.", field=voice)
        assets = Path(ASSETS)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self._ids: dict[str, int] = json.loads((assets / "vocab.json").read_text("utf-8"))
            self._session = onnxruntime.InferenceSession(
                with_output((assets / entry["file"]).read_bytes(), _DURATIONS),
                options,
                providers=["CPUExecutionProvider"],
            )
        except Exception as error:  # onnxruntime has no common base for its load errors
            raise CheckpointError(
                f"The preset voice {voice!r} cannot be loaded: {error}", field=voice
            ) from error

    def speak(self, symbols: str, speed: float, rng: np.random.Generator) -> Utterance:
        """Speak a string of at most `MAX_SYMBOLS` symbols; `rng` draws the noise in the voice.

        Raises:
            SynthesisFailed: the model failed.
        """
        known = [self._ids.get(symbol) for symbol in symbols]
        ids = [0, *(i for i in known if i is not None), 0]
        feed = {
            "ids": np.asarray([ids], np.int64),
            "speed": np.asarray([speed], np.float32),
        }
        try:
            *parts, f0, durations = self._session.run(None, feed)
        except Exception as error:  # onnxruntime's run errors derive from RuntimeError or not
            raise SynthesisFailed(f"the preset model failed: {error}") from error
        samples = dsp.synth(*(part[0] for part in parts), f0[0], rng)
        ends = np.cumsum(np.asarray(durations, np.int64).reshape(-1)) * _DURATION_SAMPLES
        # Symbols that the model does not know take no time: they end with the one before.
        position = np.cumsum([i is not None for i in known])
        return Utterance(np.asarray(samples, np.float32), ends[position])


def with_output(model: bytes, tensor: str) -> bytes:
    """Return a serialised ONNX model that gives out one more of its tensors, as its last output.

    Protocol buffers merge what is appended: a model that holds nothing but a graph with one output
    (`ModelProto.graph` is field 7, `GraphProto.output` 12, `ValueInfoProto.name` 1) adds it.
    """
    name = _field(1, tensor.encode())
    return model + _field(7, _field(12, name))


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field of a protocol buffer."""
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)
