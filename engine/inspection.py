"""What a model directory holds and lacks, file by file and key by key, without running it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from antiphon.engine.checkpoint import Checkpoint, open_checkpoint
from antiphon.engine.checkpoint.checkpoint import BACKBONE_FOLDER, REQUIRED_FILES
from antiphon.engine.checkpoint.config import ModelGeneration
from antiphon.engine.errors import CheckpointError
from antiphon.engine.flow.cosyvoice1 import RegulatedFlow
from antiphon.engine.flow.cosyvoice2 import ConformerFlow
from antiphon.engine.flow.flow import Flow
from antiphon.engine.speech_lm.qwen2 import UNUSED_KEYS, expected_shapes
from antiphon.engine.speech_lm.text_speech_lm import TextSpeechLM
from antiphon.engine.vocoder.hift import HiFT
from antiphon.engine.vocoder.hift_noncausal import CentredHiFT
from antiphon.engine.voice.reference import SpeakerEncoder, SpeechTokenizer, tokenizer_name

PUBLISHED = {
    ModelGeneration.V1: "CosyVoice-300M, CosyVoice-300M-SFT or CosyVoice-300M-Instruct",
    ModelGeneration.V2: "CosyVoice2-0.5B",
    ModelGeneration.V3: "Fun-CosyVoice3-0.5B",
}
"""Names under which the generations can be downloaded."""
_TOKENIZER_FILES = ("tokenizer_config.json", "tokenizer.json", "vocab.json", "merges.txt")
_OPTIONAL = ("spk2info.pt",)

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class FileReport:
    """One file of the directory."""

    name: str
    size: int | None
    """Bytes; None where it is not there."""
    required: bool
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class WeightsReport:
    """The tensors of one file."""

    file: str
    parameters: int
    dtypes: tuple[str, ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    other_shapes: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether the file holds what the YAML describes."""
        return not (self.missing or self.unexpected or self.other_shapes)


@dataclass(slots=True)
class CheckpointReport:
    """A model directory."""

    name: str
    generation: int
    published_as: str
    sample_rate: int
    token_rate: int
    files: list[FileReport] = field(default_factory=list)
    weights: list[WeightsReport] = field(default_factory=list)
    voices: list[str] = field(default_factory=list)
    unknown_keys: list[str] = field(default_factory=list)
    """Of the YAML: neither ours nor the published recipe's."""
    problems: list[str] = field(default_factory=list)
    """Why it cannot be used, or not in full; empty where nothing is wrong."""

    @property
    def complete(self) -> bool:
        """Whether it can be loaded and spoken with."""
        return not self.problems


def inspect_checkpoint(directory: Path) -> CheckpointReport:
    """Examine a directory. Reads all weights: seconds for a published model.

    Raises:
        CheckpointError: it is no model directory at all.
    """
    checkpoint = open_checkpoint(directory)
    report = CheckpointReport(
        name=checkpoint.name,
        generation=int(checkpoint.generation),
        published_as=PUBLISHED[checkpoint.generation],
        sample_rate=checkpoint.sample_rate,
        token_rate=checkpoint.token_rate,
        unknown_keys=sorted(checkpoint.unknown_keys),
    )
    report.files = _files(checkpoint)
    missing = [each.name for each in report.files if each.required and each.size is None]
    if missing:
        report.problems.append(
            f"{', '.join(missing)} missing; they come with {report.published_as}."
        )
    report.problems += [
        f"{each.name}: {each.problem}" for each in report.files if each.problem is not None
    ]
    for file, load, shapes in _parts(checkpoint):
        if file not in missing:
            _weigh(report, file, load, shapes)
    _noting(report, lambda: checkpoint.tokenizer)
    _noting(report, lambda: report.voices.extend(checkpoint.voices))
    return report


def _files(checkpoint: Checkpoint) -> list[FileReport]:
    names = list(REQUIRED_FILES[checkpoint.generation])
    optional = [*_OPTIONAL]
    if checkpoint.generation is not ModelGeneration.V1:
        names.append(f"{BACKBONE_FOLDER}/config.json")
        optional += [f"{BACKBONE_FOLDER}/{name}" for name in _TOKENIZER_FILES]
    found = [FileReport(name, _size(checkpoint, name), True) for name in names]
    found += [FileReport(name, _size(checkpoint, name), False) for name in optional]
    return [_tried(checkpoint, each) for each in found]


def _size(checkpoint: Checkpoint, name: str) -> int | None:
    path = checkpoint.directory / name
    return path.stat().st_size if path.is_file() else None


def _tried(checkpoint: Checkpoint, file: FileReport) -> FileReport:
    """Load the networks that hear recordings, whose signatures only their files tell."""
    loads: dict[str, Callable[[Path], object]] = {
        "campplus.onnx": SpeakerEncoder,
        tokenizer_name(checkpoint.generation): SpeechTokenizer,
    }
    if file.size is None or file.name not in loads:
        return file
    try:
        loads[file.name](checkpoint.directory / file.name)
    except CheckpointError as error:
        return FileReport(file.name, file.size, file.required, error.message)
    return file


def expected_weights(checkpoint: Checkpoint) -> Iterator[tuple[str, Shapes]]:
    """Yield what the YAML describes, file by file, without reading any weights.

    Raises:
        CheckpointError: a configuration that cannot be read.
    """
    for file, _, shapes in _parts(checkpoint):
        yield file, shapes()


Part = tuple[str, Callable[[], dict[str, Tensor]], Callable[[], Shapes]]


def _parts(checkpoint: Checkpoint) -> tuple[Part, ...]:
    return (
        ("llm.pt", checkpoint.lm_state_dict, lambda: _lm_shapes(checkpoint)),
        ("flow.pt", checkpoint.flow_state_dict, lambda: _flow_shapes(checkpoint)),
        ("hift.pt", checkpoint.hift_state_dict, lambda: _hift_shapes(checkpoint)),
    )


def _lm_shapes(checkpoint: Checkpoint) -> Shapes:
    if checkpoint.generation is ModelGeneration.V1:
        return _shapes(lambda: TextSpeechLM(checkpoint.text_speech_lm_config))
    return expected_shapes(checkpoint.lm_config)


def _flow_shapes(checkpoint: Checkpoint) -> Shapes:
    if checkpoint.generation is ModelGeneration.V1:
        return _shapes(lambda: RegulatedFlow(checkpoint.regulated_flow_config))
    if checkpoint.generation is ModelGeneration.V2:
        return _shapes(lambda: ConformerFlow(checkpoint.conformer_flow_config))
    return _shapes(lambda: Flow(checkpoint.flow_config))


def _hift_shapes(checkpoint: Checkpoint) -> Shapes:
    kind = HiFT if checkpoint.generation is ModelGeneration.V3 else CentredHiFT
    return _shapes(lambda: kind(checkpoint.hift_config))


def _shapes(make: Callable[[], nn.Module]) -> Shapes:
    """Keys and shapes of a module, without memory for its weights."""
    with torch.device("meta"):
        return {key: tuple(value.shape) for key, value in make().state_dict().items()}


def _weigh(
    report: CheckpointReport,
    file: str,
    load: Callable[[], dict[str, Tensor]],
    shapes: Callable[[], Shapes],
) -> None:
    """Compare a file of weights with what the YAML describes."""
    try:
        expected, state = shapes(), load()
    except CheckpointError as error:
        report.problems.append(error.message)
        return
    state = {key: value for key, value in state.items() if key not in UNUSED_KEYS}
    weights = WeightsReport(
        file=file,
        parameters=sum(value.numel() for value in state.values()),
        dtypes=tuple(sorted({str(value.dtype).removeprefix("torch.") for value in state.values()})),
        missing=tuple(sorted(set(expected) - set(state))),
        unexpected=tuple(sorted(set(state) - set(expected))),
        other_shapes=tuple(
            f"{key} {tuple(state[key].shape)} instead of {shape}"
            for key, shape in expected.items()
            if key in state and tuple(state[key].shape) != shape
        ),
    )
    report.weights.append(weights)
    if not weights.fits:
        report.problems.append(
            f"{file} does not fit the YAML: {len(weights.missing)} keys missing, "
            f"{len(weights.unexpected)} unexpected, {len(weights.other_shapes)} of another shape."
        )


def _noting(report: CheckpointReport, attempt: Callable[[], object]) -> None:
    try:
        attempt()
    except CheckpointError as error:
        if error.message not in report.problems:
            report.problems.append(error.message)
