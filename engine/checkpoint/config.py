"""What a checkpoint's YAML says about its networks, as frozen dataclasses.

Field names are those of the official YAML, so that a reader finds each number again. Sizes
describe the model and come from its directory alone; nothing here is a deployment's choice.
`reader.py` fills these in.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class ModelGeneration(IntEnum):
    """The published families; they differ in layout, not only in size."""

    V1 = 1
    """CosyVoice-300M."""
    V2 = 2
    """CosyVoice2-0.5B."""
    V3 = 3
    """Fun-CosyVoice3-0.5B and the nano checkpoint."""


@dataclass(frozen=True, slots=True)
class MelConfig:
    """Log-mel features: magnitudes, slaney filters, natural logarithm clipped at 1e-5."""

    n_fft: int
    num_mels: int
    sampling_rate: int
    hop_size: int
    win_size: int
    fmin: float
    fmax: float | None
    """None: up to half the sampling rate."""
    center: bool


@dataclass(frozen=True, slots=True)
class Qwen2Config:
    """Backbone of the speech LM, from `CosyVoice-BlankEN/config.json`."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float

    @property
    def head_dim(self) -> int:
        """Channels of one attention head."""
        return self.hidden_size // self.num_attention_heads


@dataclass(frozen=True, slots=True)
class RASConfig:
    """Repetition-aware sampling as the checkpoint was tuned with."""

    top_p: float
    top_k: int
    win_size: int
    tau_r: float


@dataclass(frozen=True, slots=True)
class SpeechIds:
    """Special ids of the speech LM.

    In version 3 they are rows of `speech_embedding`. In version 2 `sos` and `task` are rows of the
    separate two-row `llm_embedding` (0 and 1) and are no speech ids.
    """

    sos: int
    eos: int
    task: int
    fill: int
    first_stop: int
    """Ids from here on are no speech: any of them ends plain decoding."""
    rows: int
    """Rows of `speech_embedding` and of the head."""
    sos_and_task_are_speech_rows: bool


@dataclass(frozen=True, slots=True)
class LMConfig:
    """The speech LM of versions 2 and 3."""

    speech_token_size: int
    mix_ratio: tuple[int, int]
    """Text tokens to speech tokens in one block of the bi-stream layout."""
    sampling: RASConfig
    backbone: Qwen2Config
    ids: SpeechIds
    head_bias: bool
    silent_ids: frozenset[int]
    """Ids of silence whose long runs are shortened; empty where no rule is known."""
    max_silent_run: int
    needs_end_of_prompt: bool
    """Whether the text or the prompt text must hold `<|endofprompt|>`."""

    @property
    def min_ratio(self) -> float:
        """Fewest speech tokens for a text token: 2 for the published mix of 5:15.

        The mix ratio tells how much text a token stands for, so it scales the published bounds for
        checkpoints whose text tokens are smaller (nano's are phones: 8:12 gives 1).
        """
        text, speech = self.mix_ratio
        return speech / text * 2 / 3

    @property
    def max_ratio(self) -> float:
        """Most speech tokens for a text token: 20 for the published mix of 5:15."""
        return 10 * self.min_ratio


@dataclass(frozen=True, slots=True)
class DiTConfig:
    """Diffusion transformer estimator of version 3."""

    dim: int
    depth: int
    heads: int
    dim_head: int
    ff_mult: int
    mel_dim: int
    mu_dim: int
    spk_dim: int
    out_channels: int
    static_chunk_size: int
    """Mel frames of one attention block (tokens of a chunk times frames a token)."""
    num_decoding_left_chunks: int
    """-1: every earlier chunk is visible."""


@dataclass(frozen=True, slots=True)
class PreLookaheadConfig:
    """Convolutions over the token embeddings that look `pre_lookahead_len` tokens ahead."""

    in_channels: int
    channels: int
    pre_lookahead_len: int


@dataclass(frozen=True, slots=True)
class CFMConfig:
    """Conditional flow matching: how the estimator is integrated."""

    in_channels: int
    spk_emb_dim: int
    sigma_min: float
    solver: str
    t_scheduler: str
    inference_cfg_rate: float


@dataclass(frozen=True, slots=True)
class FlowConfig:
    """Flow matching of version 3 (`CausalMaskedDiffWithDiT`)."""

    input_size: int
    output_size: int
    spk_embed_dim: int
    vocab_size: int
    input_frame_rate: int
    token_mel_ratio: int
    pre_lookahead_len: int
    pre_lookahead_layer: PreLookaheadConfig
    decoder: CFMConfig
    estimator: DiTConfig
    chunk_size: int
    """Tokens of one attention block."""


@dataclass(frozen=True, slots=True)
class F0PredictorConfig:
    """Convolutional F0 net of the vocoder."""

    num_class: int
    in_channels: int
    cond_channels: int
    causal: bool


@dataclass(frozen=True, slots=True)
class HiFTConfig:
    """HiFT vocoder (harmonic source, inverse STFT head) of all versions."""

    in_channels: int
    base_channels: int
    nb_harmonics: int
    sampling_rate: int
    nsf_alpha: float
    nsf_sigma: float
    nsf_voiced_threshold: float
    upsample_rates: tuple[int, ...]
    upsample_kernel_sizes: tuple[int, ...]
    istft_n_fft: int
    istft_hop_len: int
    resblock_kernel_sizes: tuple[int, ...]
    resblock_dilation_sizes: tuple[tuple[int, ...], ...]
    source_resblock_kernel_sizes: tuple[int, ...]
    source_resblock_dilation_sizes: tuple[tuple[int, ...], ...]
    lrelu_slope: float
    audio_limit: float
    f0_predictor: F0PredictorConfig
    causal: bool
    conv_pre_look_right: int = 0
    """Mel frames that the first convolution of the causal vocoder looks ahead."""

    @property
    def samples_per_frame(self) -> int:
        """Samples that one mel frame becomes."""
        total = self.istft_hop_len
        for rate in self.upsample_rates:
            total *= rate
        return total
