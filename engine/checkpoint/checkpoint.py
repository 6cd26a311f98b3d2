"""`open_checkpoint`: a model directory as published, opened without conversion.

checkpoint = open_checkpoint(Path("Fun-CosyVoice3-0.5B"))
checkpoint.lm_config, checkpoint.flow_config, checkpoint.hift_config    # what the YAML says
checkpoint.lm_state_dict(), checkpoint.flow_state_dict(), …             # weights, when asked for
checkpoint.tokenizer, checkpoint.voices                                 # text ids, stored voices
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Final

from antiphon.engine.checkpoint.config import (
    FlowConfig,
    HiFTConfig,
    LMConfig,
    MelConfig,
    ModelGeneration,
    Qwen2Config,
)
from antiphon.engine.checkpoint.document import Document, load_document
from antiphon.engine.checkpoint.reader import (
    read_backbone,
    read_flow,
    read_generation,
    read_hift,
    read_lm,
    read_mel,
    read_rates,
    unknown_top_level,
)
from antiphon.engine.checkpoint.tokenizer import TextTokenizer, load_tokenizer
from antiphon.engine.checkpoint.unet_config import (
    ConformerFlowConfig,
    RegulatedFlowConfig,
    TextSpeechLMConfig,
)
from antiphon.engine.checkpoint.unet_reader import (
    read_conformer_flow,
    read_regulated_flow,
    read_text_speech_lm,
)
from antiphon.engine.checkpoint.voices import StoredVoice, load_voices
from antiphon.engine.checkpoint.weights import StateDict, content_hash, load_state_dict
from antiphon.engine.checkpoint.whisper_tokenizer import load_whisper_tokenizer
from antiphon.engine.errors import CheckpointError

YAML_NAMES: Final = ("cosyvoice3.yaml", "cosyvoice2.yaml", "cosyvoice.yaml")
BACKBONE_FOLDER: Final = "CosyVoice-BlankEN"
REQUIRED_FILES: Final = {
    ModelGeneration.V1: (
        "llm.pt",
        "flow.pt",
        "hift.pt",
        "campplus.onnx",
        "speech_tokenizer_v1.onnx",
    ),
    ModelGeneration.V2: (
        "llm.pt",
        "flow.pt",
        "hift.pt",
        "campplus.onnx",
        "speech_tokenizer_v2.onnx",
    ),
    ModelGeneration.V3: (
        "llm.pt",
        "flow.pt",
        "hift.pt",
        "campplus.onnx",
        "speech_tokenizer_v3.onnx",
    ),
}


class Checkpoint:
    """One model directory. Parts are read when asked for, configurations once.

    Properties raise `CheckpointError` with the file and key at fault.
    """

    def __init__(self, directory: Path, document: Document) -> None:
        self.directory = directory
        self.generation = read_generation(document)
        self.sample_rate, self.token_rate, self.token_mel_ratio = read_rates(
            document, self.generation
        )
        self.unknown_keys = unknown_top_level(document)
        """Top-level YAML keys that are neither ours nor the published recipe's."""
        self._document = document

    @property
    def name(self) -> str:
        """Name of the directory, by which users know the model."""
        return self.directory.resolve().name

    def file(self, name: str) -> Path:
        """Return the path of a file of the checkpoint.

        Raises:
            CheckpointError: it is not there.
        """
        path = self.directory / name
        if not path.is_file():
            raise CheckpointError(f"{name} is missing in {self.name}.", field=name)
        return path

    def missing_files(self) -> list[str]:
        """Return the names of required files that are not there."""
        names = list(REQUIRED_FILES[self.generation])
        if self.generation is not ModelGeneration.V1:
            names.append(f"{BACKBONE_FOLDER}/config.json")
        return [name for name in names if not (self.directory / name).is_file()]

    @cached_property
    def backbone_config(self) -> Qwen2Config:
        """Dimensions of the Qwen2 backbone."""
        return read_backbone(self.file(f"{BACKBONE_FOLDER}/config.json"))

    @cached_property
    def lm_config(self) -> LMConfig:
        """The speech LM of version 2 or 3."""
        return read_lm(self._document, self.backbone_config)

    @cached_property
    def flow_config(self) -> FlowConfig:
        """The flow of version 3."""
        return read_flow(self._document)

    @cached_property
    def conformer_flow_config(self) -> ConformerFlowConfig:
        """The flow of version 2."""
        return read_conformer_flow(self._document)

    @cached_property
    def regulated_flow_config(self) -> RegulatedFlowConfig:
        """The flow of version 1."""
        return read_regulated_flow(self._document)

    @cached_property
    def text_speech_lm_config(self) -> TextSpeechLMConfig:
        """The speech LM of version 1."""
        return read_text_speech_lm(self._document)

    @cached_property
    def hift_config(self) -> HiFTConfig:
        """The vocoder."""
        return read_hift(self._document)

    @cached_property
    def mel_config(self) -> MelConfig:
        """The prompt mel's features."""
        return read_mel(self._document)

    @cached_property
    def tokenizer(self) -> TextTokenizer:
        """The text tokenizer. That of version 1 is Whisper's and lies in its package."""
        if self.generation is ModelGeneration.V1:
            tokenizer = load_whisper_tokenizer()
            size = self.text_speech_lm_config.text_token_size
            if tokenizer.size != size:
                raise CheckpointError(
                    f"{self.name} has {size} text tokens; only Whisper's {tokenizer.size} are "
                    "known for version 1.",
                    field="text_token_size",
                    limit=tokenizer.size,
                )
            return tokenizer
        return load_tokenizer(self.directory / BACKBONE_FOLDER, self.generation)

    @cached_property
    def voices(self) -> dict[str, StoredVoice]:
        """Voices of `spk2info.pt` by name."""
        first = self.generation is ModelGeneration.V1
        lm = self.text_speech_lm_config if first else self.lm_config
        return load_voices(
            self.directory / "spk2info.pt",
            speech_codes=lm.speech_token_size,
            text_tokens=self.tokenizer.size,
            mel_bins=self.mel_config.num_mels,
            frames_per_token=0 if first else self.token_mel_ratio,
        )

    def lm_state_dict(self) -> StateDict:
        """Return the weights of `llm.pt`. They win over those inside the tokenizer folder."""
        return load_state_dict(self.directory / "llm.pt")

    def flow_state_dict(self) -> StateDict:
        """Return the weights of `flow.pt`."""
        return load_state_dict(self.directory / "flow.pt")

    def hift_state_dict(self) -> StateDict:
        """Return the weights of `hift.pt`, also one cut from a GAN training checkpoint."""
        return load_state_dict(self.directory / "hift.pt", prefix="generator.")

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over YAML, weights and tokenizer: equal where voices are interchangeable.

        Reads every byte (seconds for a published model); not for an event loop.
        """
        names = ("llm.pt", "flow.pt", "hift.pt")
        return content_hash([*map(self.file, names), *self._shared_files()])

    @cached_property
    def lm_fingerprint(self) -> str:
        """SHA-256 over what decides the speech LM's numbers: the key of its exports."""
        return content_hash([self.file("llm.pt"), *self._shared_files()])

    def _shared_files(self) -> list[Path]:
        folder = self.directory / BACKBONE_FOLDER
        names = (
            "config.json", "tokenizer.json", "vocab.json", "merges.txt", "tokenizer_config.json",
        )  # fmt: skip
        return [self._document.path, *(folder / n for n in names if (folder / n).is_file())]


def open_checkpoint(directory: Path) -> Checkpoint:
    """Open a model directory and recognise its generation.

    Raises:
        CheckpointError: no such directory, no `cosyvoice*.yaml` in it, or one that is no such
            model's.
    """
    if not directory.is_dir():
        raise CheckpointError(f"There is no model directory {directory}.", field="model")
    for name in YAML_NAMES:
        if (directory / name).is_file():
            return Checkpoint(directory, load_document(directory / name))
    raise CheckpointError(
        f"{directory} holds none of {', '.join(YAML_NAMES)}.", field=YAML_NAMES[0]
    )
