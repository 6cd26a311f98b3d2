"""Reference audio to what the networks hear of it: speech tokens, mel and speaker embedding."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from antiphon.engine.audio_file import DecodedAudio
from antiphon.engine.checkpoint.checkpoint import Checkpoint
from antiphon.engine.checkpoint.config import MelConfig, ModelGeneration
from antiphon.engine.errors import CheckpointError, InvalidRequest
from antiphon.engine.voice.features import (
    WHISPER_RATE,
    kaldi_filterbank,
    log_mel,
    whisper_log_mel,
)
from antiphon.engine.voice.onnx_part import InputSpec, OnnxPart
from antiphon.engine.voice.resample import resample

SPEAKER_ENCODER = "campplus.onnx"
EMBEDDING_SIZE = 192
MAX_REFERENCE_S = 30.0
"""The speech tokenizer was trained on Whisper's windows of 30 s."""
MIN_REFERENCE_RATE = 16_000
_UPSTREAM_V1_RATE = 24_000


class SpeechTokenizer:
    """`speech_tokenizer_v*.onnx`: 16 kHz audio to speech tokens."""

    def __init__(self, path: Path) -> None:
        """Load it; raises `CheckpointError`."""
        self._part = OnnxPart(
            path,
            [InputSpec("tensor(float)", (1, 128, None)), InputSpec("tensor(int32)", (1,))],
        )
        self._file = path.name

    def tokens(self, samples: NDArray[np.float32]) -> NDArray[np.int64]:
        """Return (tokens,) of mono 16 kHz audio of at most 30 s.

        Raises:
            CheckpointError: the network's output is no list of token ids.
        """
        features = whisper_log_mel(samples).numpy()[None]
        length = np.array([features.shape[2]], dtype=np.int32)
        output = self._part.run(features, length)
        if not np.issubdtype(output.dtype, np.integer) or output.size == 0:
            raise CheckpointError(f"{self._file} does not return token ids.", field=self._file)
        tokens: NDArray[np.int64] = output.reshape(-1).astype(np.int64)
        return tokens


class SpeakerEncoder:
    """`campplus.onnx` (CAM++, arXiv 2303.00332): 16 kHz audio to a speaker embedding."""

    def __init__(self, path: Path) -> None:
        """Load it; raises `CheckpointError`."""
        self._part = OnnxPart(path, [InputSpec("tensor(float)", (None, None, 80))])
        self._file = path.name

    def embedding(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return (192,) of mono 16 kHz audio.

        Raises:
            CheckpointError: the network's output is no embedding.
        """
        features = kaldi_filterbank(samples)
        output = self._part.run((features - features.mean(dim=0)).numpy()[None])
        if output.size != EMBEDDING_SIZE or not np.isfinite(output).all():
            raise CheckpointError(f"{self._file} does not return an embedding.", field=self._file)
        return output.reshape(-1).astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class ReferenceFeatures:
    """What was heard of one recording."""

    tokens: NDArray[np.int64]
    """(tokens,)"""
    mel: NDArray[np.float32]
    """(frames, 80)"""
    embedding: NDArray[np.float32]
    """(192,)"""

    def trimmed(self) -> ReferenceFeatures:
        """Cut tokens and mel to their common length of two frames a token (versions 2 and 3)."""
        common = min(len(self.mel) // 2, len(self.tokens))
        return ReferenceFeatures(self.tokens[:common], self.mel[: 2 * common], self.embedding)


class ReferenceExtractor:
    """The networks of one model directory that listen to reference audio."""

    def __init__(
        self,
        generation: ModelGeneration,
        mel: MelConfig,
        tokenizer: Path,
        speaker_encoder: Path,
        *,
        compat: bool = False,
    ) -> None:
        """Load both networks; raises `CheckpointError`.

        `compat` reproduces upstream's prompt mel of version 1, for golden numbers only: audio at
        24000 Hz read as if it were 22050 Hz.
        """
        self._generation = generation
        self._mel = mel
        self._compat = compat
        self._tokenizer = SpeechTokenizer(tokenizer)
        self.speakers = SpeakerEncoder(speaker_encoder)
        self.fingerprint = _fingerprint(generation, mel, tokenizer, speaker_encoder)
        """Equal for models whose voices can be exchanged."""

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> ReferenceExtractor:
        """Load the networks of a checkpoint; raises `CheckpointError`."""
        generation = checkpoint.generation
        return cls(
            generation,
            checkpoint.mel_config,
            checkpoint.file(tokenizer_name(generation)),
            checkpoint.file(SPEAKER_ENCODER),
        )

    def extract(self, audio: DecodedAudio) -> ReferenceFeatures:
        """Return untrimmed features of a recording.

        Raises:
            InvalidRequest: below 16 kHz, longer than 30 s or too short for one token.
        """
        check_recording(audio)
        heard = resample(audio.samples, audio.rate, WHISPER_RATE)
        return ReferenceFeatures(
            self._tokenizer.tokens(heard),
            self._prompt_mel(audio),
            self.speakers.embedding(heard),
        )

    def prompt(self, audio: DecodedAudio) -> ReferenceFeatures:
        """Return features cut to the lengths that the models take as a prompt."""
        features = self.extract(audio)
        return features if self._generation is ModelGeneration.V1 else features.trimmed()

    def tokens(self, audio: DecodedAudio) -> NDArray[np.int64]:
        """Return the speech tokens alone (the source of voice conversion)."""
        check_recording(audio)
        return self._tokenizer.tokens(resample(audio.samples, audio.rate, WHISPER_RATE))

    def _prompt_mel(self, audio: DecodedAudio) -> NDArray[np.float32]:
        wrong = self._compat and self._generation is ModelGeneration.V1
        rate = _UPSTREAM_V1_RATE if wrong else self._mel.sampling_rate
        mel: NDArray[np.float32] = log_mel(
            resample(audio.samples, audio.rate, rate), self._mel
        ).numpy()
        return mel


def check_recording(audio: DecodedAudio, longest_s: float = MAX_REFERENCE_S) -> None:
    """Return if a recording can be heard by the networks.

    Raises:
        InvalidRequest: below 16 kHz, longer than `longest_s` or too short for one token.
    """
    seconds = len(audio.samples) / audio.rate
    if audio.rate < MIN_REFERENCE_RATE:
        raise InvalidRequest(
            f"The recording's sample rate is {audio.rate} Hz; at least 16000 Hz are needed.",
            field="audio",
            limit=MIN_REFERENCE_RATE,
        )
    if seconds > longest_s:
        raise InvalidRequest(
            f"The recording is {seconds:.1f} s long; at most {longest_s:g} s can be used.",
            field="audio",
            limit=longest_s,
        )
    if seconds < 0.2:
        raise InvalidRequest("The recording is too short to be heard.", field="audio", limit=0.2)


def can_hear(checkpoint: Checkpoint) -> bool:
    """Whether the networks that hear recordings are in the directory."""
    names = (tokenizer_name(checkpoint.generation), SPEAKER_ENCODER)
    return all((checkpoint.directory / name).is_file() for name in names)


def checkpoint_fingerprint(checkpoint: Checkpoint) -> str | None:
    """Return the fingerprint of the voices that fit a checkpoint, without loading a network.

    None where one of the networks that hear recordings is not there.
    """
    if not can_hear(checkpoint):
        return None
    tokenizer = checkpoint.directory / tokenizer_name(checkpoint.generation)
    speaker_encoder = checkpoint.directory / SPEAKER_ENCODER
    return _fingerprint(checkpoint.generation, checkpoint.mel_config, tokenizer, speaker_encoder)


def tokenizer_name(generation: ModelGeneration) -> str:
    """Return the file name of a generation's speech tokenizer."""
    return f"speech_tokenizer_v{int(generation)}.onnx"


def _fingerprint(
    generation: ModelGeneration, mel: MelConfig, tokenizer: Path, speaker_encoder: Path
) -> str:
    digest = hashlib.sha256(repr((int(generation), sorted(asdict(mel).items()))).encode())
    for path in (tokenizer, speaker_encoder):
        status = path.stat()
        digest.update(_file_digest(path, status.st_size, status.st_mtime_ns))
    return digest.hexdigest()[:32]


@lru_cache(maxsize=16)
def _file_digest(path: Path, size: int, changed_ns: int) -> bytes:
    """Hash a file once; size and time of change make a replaced file a new one."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
