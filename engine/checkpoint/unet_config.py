"""What the YAML of CosyVoice 1 and 2 says about their flow, and of 1 about its LM."""

from __future__ import annotations

from dataclasses import dataclass

from antiphon.engine.checkpoint.config import CFMConfig, RASConfig


@dataclass(frozen=True, slots=True)
class UNetConfig:
    """Velocity estimator: `ConditionalDecoder` (version 1) or its causal form (version 2)."""

    in_channels: int
    out_channels: int
    channels: tuple[int, ...]
    attention_head_dim: int
    n_blocks: int
    num_mid_blocks: int
    num_heads: int
    causal: bool
    static_chunk_size: int = 0
    """Mel frames of one attention block; 0 for version 1, which has none."""


@dataclass(frozen=True, slots=True)
class ConformerConfig:
    """An encoder with relative positions; without convolution module and macaron layers."""

    input_size: int
    output_size: int
    attention_heads: int
    linear_units: int
    num_blocks: int
    static_chunk_size: int
    """Positions of one attention block; 0: everything is visible."""


@dataclass(frozen=True, slots=True)
class ConformerFlowConfig:
    """Flow of version 2 (`CausalMaskedDiffWithXvec`)."""

    input_size: int
    output_size: int
    spk_embed_dim: int
    vocab_size: int
    input_frame_rate: int
    token_mel_ratio: int
    pre_lookahead_len: int
    encoder: ConformerConfig
    decoder: CFMConfig
    estimator: UNetConfig


@dataclass(frozen=True, slots=True)
class RegulatedFlowConfig:
    """Flow of version 1 (`MaskedDiffWithXvec`): tokens are stretched to the mel's length."""

    input_size: int
    output_size: int
    spk_embed_dim: int
    vocab_size: int
    input_frame_rate: int
    encoder: ConformerConfig
    regulator_channels: int
    regulator_layers: int
    decoder: CFMConfig
    estimator: UNetConfig


@dataclass(frozen=True, slots=True)
class TextSpeechLMConfig:
    """Speech LM of version 1 (`TransformerLM`)."""

    text_token_size: int
    speech_token_size: int
    spk_embed_dim: int
    llm_input_size: int
    llm_output_size: int
    text_encoder: ConformerConfig
    llm: ConformerConfig
    sampling: RASConfig
