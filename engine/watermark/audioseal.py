"""AudioSeal (arXiv 2401.17264): a learned mark with 16 bits of payload, where its weights are.

The package carries no weights: the official ones (`generator_streaming.pth` and, to detect,
`detector_streaming.pth` beside it) are named by path. The network works at 16 kHz in hops of 20 ms
and costs more than real time on a slow core, which is why it is not the default.

The package's own `streaming` context does not reach inside its `nn.Sequential`s, so chunks are
marked as if each stood alone, with borders. Here every streaming module is started by itself, in a
copy for each session that shares the weights: the streamed mark equals that of the whole file.
"""

from __future__ import annotations

import copy
import os
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from antiphon.engine.errors import WatermarkUnavailable
from antiphon.engine.watermark.interface import Detection
from antiphon.engine.watermark.marked import _STAGE_KEY, FloatSamples, MarkedAudio
from antiphon.engine.watermark.rational import RationalResampler

RATE_HZ = 16000
HOP = 320
PAYLOAD_BITS = 16
_DECAY = 240
"""Samples of digital silence after which the mark fades, and over which it does."""
_FRAME_S = 0.1
_DETECT_CHUNK_S = 10.0


class AudioSealStream:
    """Marks one turn. Holds back one hop of the network and the reach of two resamplers."""

    def __init__(self, generator: nn.Module, message: Tensor, sample_rate: int) -> None:
        self._generator = _streaming_copy(generator)
        self._message = message
        self._rate = sample_rate
        self._down = RationalResampler(sample_rate, RATE_HZ)
        self._up = RationalResampler(RATE_HZ, sample_rate)
        self._narrow = np.zeros(0, np.float32)
        self._waiting = np.zeros(0, np.float32)
        self._mark = np.zeros(0, np.float32)
        self._silent = 2 * _DECAY

    @property
    def hold_back_samples(self) -> int:
        """Most samples that `push` keeps for later."""
        narrow = HOP + self._up.hold_back + 1
        return -(-narrow * self._rate // RATE_HZ) + self._down.hold_back + 1

    def push(self, samples: FloatSamples) -> MarkedAudio:
        """Mark samples; may return fewer than were pushed, also none."""
        self._waiting = np.concatenate([self._waiting, samples])
        self._narrow = np.concatenate([self._narrow, self._down.push(samples)])
        ready = len(self._narrow) // HOP * HOP
        self._generate(ready)
        return self._release(min(len(self._waiting), len(self._mark)))

    def finish(self) -> MarkedAudio:
        """Return what was held back. The stream cannot be used afterwards."""
        self._narrow = np.concatenate([self._narrow, self._down.finish()])
        padding = -len(self._narrow) % HOP
        self._narrow = np.concatenate([self._narrow, np.zeros(padding, np.float32)])
        self._generate(len(self._narrow))
        self._mark = np.concatenate([self._mark, self._up.finish()])
        return self._release(len(self._waiting))

    @torch.inference_mode()
    def _generate(self, count: int) -> None:
        if not count:
            return
        hops, self._narrow = self._narrow[:count], self._narrow[count:]
        mark = _mark_of(self._generator, torch.from_numpy(hops)[None, None], self._message)
        self._mark = np.concatenate([self._mark, self._up.push(mark[0, 0].numpy())])

    def _release(self, count: int) -> MarkedAudio:
        samples, self._waiting = self._waiting[:count], self._waiting[count:]
        mark, self._mark = self._mark[:count], self._mark[count:]
        marked = np.clip(samples + mark * self._gain(samples), -1.0, 1.0)
        return MarkedAudio(
            marked.astype(np.float32), self._rate, AudioSealWatermark.name, _key=_STAGE_KEY
        )

    def _gain(self, samples: FloatSamples) -> FloatSamples:
        """1 while there is sound, falling to 0 in digital silence: silence stays silent."""
        if not len(samples):
            return samples
        index = np.arange(len(samples))
        last = np.maximum.accumulate(np.where(samples != 0, index, -1))
        silent = np.where(last >= 0, index - last, self._silent + index + 1)
        self._silent = min(int(silent[-1]), 2 * _DECAY)
        return np.clip(2 - silent / _DECAY, 0, 1).astype(np.float32)


class AudioSealWatermark:
    """See `Watermark`."""

    name = "audioseal"

    def __init__(self, weights: Path, *, payload: int | None = None) -> None:
        """Load the generator, and the detector if it lies beside it.

        Args:
            weights: checkpoint of the streaming generator; its detector has `detector` in its name
                where this has `generator`.
            payload: 16 bits that every sample carries; 0 by default.

        Raises:
            WatermarkUnavailable: the package or the file is missing, or does not fit.
        """
        bits = payload or 0
        if not 0 <= bits < 1 << PAYLOAD_BITS:
            raise WatermarkUnavailable(
                f"The payload of audioseal has {PAYLOAD_BITS} bits.",
                field="watermark.payload",
                limit=(1 << PAYLOAD_BITS) - 1,
            )
        self._generator = _load(weights, "audioseal_wm_streaming")
        beside = weights.with_name(weights.name.replace("generator", "detector"))
        has_detector = beside != weights and beside.exists()
        self._detector = _load(beside, "audioseal_detector_streaming") if has_detector else None
        self._message = torch.tensor([[bits >> i & 1 for i in range(PAYLOAD_BITS)]])

    def stream(self, sample_rate: int) -> AudioSealStream:
        """Start marking a turn at `sample_rate` Hz."""
        return AudioSealStream(self._generator, self._message, sample_rate)

    def detect(self, samples: FloatSamples, sample_rate: int) -> Detection:
        """Say whether and where mono samples carry the mark, whatever its payload.

        Raises:
            WatermarkUnavailable: the detector's weights are not beside the generator's.
        """
        marks, _ = self._judge(samples, sample_rate)
        if not len(marks):
            return Detection(marked=False, score=0.0, spans=())
        frame = round(_FRAME_S * RATE_HZ)
        frames = [float(marks[i : i + frame].mean()) for i in range(0, len(marks), frame)]
        score = float(marks.mean())
        spans = _spans([value > 0.5 for value in frames], len(marks) / RATE_HZ)
        return Detection(marked=score > 0.5, score=score, spans=spans)

    def payload(self, samples: FloatSamples, sample_rate: int) -> int:
        """Return the 16 bits that marked samples carry; meaningless where nothing is marked.

        Raises:
            WatermarkUnavailable: the detector's weights are not beside the generator's.
        """
        _, bits = self._judge(samples, sample_rate)
        return sum(1 << i for i in range(PAYLOAD_BITS) if bits[i] > 0)

    @torch.inference_mode()
    def _judge(self, samples: FloatSamples, sample_rate: int) -> tuple[FloatSamples, FloatSamples]:
        """Return the probability of a mark for each sample at 16 kHz, and evidence for each bit."""
        if self._detector is None:
            raise WatermarkUnavailable(
                "The detector's weights of audioseal are not beside its generator's.",
                field="watermark.weights",
            )
        resampler = RationalResampler(sample_rate, RATE_HZ)
        narrow = np.concatenate([resampler.push(samples), resampler.finish()])
        chunk = round(_DETECT_CHUNK_S * RATE_HZ)
        marks: list[FloatSamples] = []
        bits = np.zeros(PAYLOAD_BITS, np.float32)
        for start in range(0, len(narrow), chunk):
            piece = torch.from_numpy(narrow[start : start + chunk])[None, None]
            found, message = self._detector(piece)
            marks.append(found[0, 1].numpy())
            bits += (message[0].numpy() - 0.5) * piece.shape[-1]
        return np.concatenate(marks) if marks else np.zeros(0, np.float32), bits


def _mark_of(generator: Any, samples: Tensor, message: Tensor) -> Tensor:
    hidden = generator.msg_processor(generator.encoder(samples), message)
    return cast(Tensor, generator.decoder(hidden))


def _streaming_copy(generator: nn.Module) -> nn.Module:
    shared = {id(t): t for t in (*generator.parameters(), *generator.buffers())}
    own = copy.deepcopy(generator, cast(dict[int, Any], shared))
    for module in own.modules():
        start = getattr(module, "_start_streaming", None)
        if start is not None:
            start(1)
    return own


def _load(weights: Path, card: str) -> Any:
    # On first use the package would compile its functions with torch's compiler: seconds of wait.
    os.environ.setdefault("NO_TORCH_COMPILE", "1")
    try:
        builder, loader = import_module("audioseal.builder"), import_module("audioseal.loader")
        omegaconf = import_module("omegaconf")
    except ImportError as error:
        raise WatermarkUnavailable(
            "The audioseal watermark needs the package audioseal: pip install audioseal",
            field="watermark.name",
        ) from error
    is_generator = "wm" in card
    kind = builder.AudioSealWMConfig if is_generator else builder.AudioSealDetectorConfig
    create = builder.create_generator if is_generator else builder.create_detector
    described = omegaconf.OmegaConf.to_container(loader.load_local_model_config(card))
    model = create(loader.AudioSeal.parse_config(described, config_type=kind))
    try:
        state = torch.load(weights, map_location="cpu", weights_only=True)
        state = state.get("best_state", state).get("model", state)
        loader.load_state_dict(model, loader.convert_state_dict_for_scriptable_model(state))
    except Exception as error:  # pickle, zip, key and shape errors have no common base
        raise WatermarkUnavailable(
            f"{weights.name} is not a checkpoint of {card}: {error}", field="watermark.weights"
        ) from error
    return model.eval().requires_grad_(False)


def _spans(marked: list[bool], total_s: float) -> tuple[tuple[float, float], ...]:
    spans: list[tuple[float, float]] = []
    for index, is_marked in enumerate(marked):
        if not is_marked:
            continue
        start, end = index * _FRAME_S, min(total_s, (index + 1) * _FRAME_S)
        if spans and abs(spans[-1][1] - start) < 1e-6:
            spans[-1] = (spans[-1][0], end)
        else:
            spans.append((start, end))
    return tuple(spans)
