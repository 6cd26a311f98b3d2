"""YAML sections of CosyVoice 1 and 2 to dataclasses: flow of both, LM of version 1."""

from __future__ import annotations

from antiphon.engine.checkpoint.document import Document
from antiphon.engine.checkpoint.reader import read_cfm, read_ras
from antiphon.engine.checkpoint.section import Section
from antiphon.engine.checkpoint.unet_config import (
    ConformerConfig,
    ConformerFlowConfig,
    RegulatedFlowConfig,
    TextSpeechLMConfig,
    UNetConfig,
)

_TRAINING = ("dropout_rate", "positional_dropout_rate", "attention_dropout_rate")
_FIXED = {
    "normalize_before": True,
    "use_cnn_module": False,
    "macaron_style": False,
    "use_dynamic_chunk": False,
    "use_dynamic_left_chunk": False,
    "pos_enc_layer_type": "rel_pos_espnet",
    "selfattention_layer_type": "rel_selfattn",
}
"""What every published configuration says; other values would be other networks."""


def read_conformer_flow(document: Document) -> ConformerFlowConfig:
    """Read the flow of version 2.

    Raises:
        CheckpointError: another class of flow, a missing or unknown key.
    """
    section = Section.of(document, "flow", document.root.get("flow"))
    _require_class(section, "CausalMaskedDiffWithXvec")
    decoder = section.section("decoder")
    config = ConformerFlowConfig(
        input_size=section.integer("input_size"),
        output_size=section.integer("output_size"),
        spk_embed_dim=section.integer("spk_embed_dim"),
        vocab_size=section.integer("vocab_size"),
        input_frame_rate=section.integer("input_frame_rate", high=1000),
        token_mel_ratio=section.integer("token_mel_ratio", high=16),
        pre_lookahead_len=section.integer("pre_lookahead_len", high=64),
        encoder=_read_encoder(section.section("encoder"), "UpsampleConformerEncoder", "linear"),
        decoder=read_cfm(decoder),
        estimator=_read_unet(decoder.section("estimator"), "CausalConditionalDecoder"),
    )
    decoder.finish(ignore=("n_spks",))
    section.finish(ignore=("output_type", "only_mask_loss"))
    if config.encoder.static_chunk_size * config.token_mel_ratio != (
        config.estimator.static_chunk_size
    ):
        raise section.fail("decoder", "has other attention blocks than the encoder")
    return config


def read_regulated_flow(document: Document) -> RegulatedFlowConfig:
    """Read the flow of version 1.

    Raises:
        CheckpointError: another class of flow, a missing or unknown key.
    """
    section = Section.of(document, "flow", document.root.get("flow"))
    _require_class(section, "MaskedDiffWithXvec")
    decoder = section.section("decoder")
    regulator = section.section("length_regulator")
    config = RegulatedFlowConfig(
        input_size=section.integer("input_size"),
        output_size=section.integer("output_size"),
        spk_embed_dim=section.integer("spk_embed_dim"),
        vocab_size=section.integer("vocab_size"),
        input_frame_rate=section.integer("input_frame_rate", high=1000),
        encoder=_read_encoder(section.section("encoder"), "ConformerEncoder", "linear"),
        regulator_channels=regulator.integer("channels"),
        regulator_layers=len(regulator.integers("sampling_ratios")),
        decoder=read_cfm(decoder),
        estimator=_read_unet(decoder.section("estimator"), "ConditionalDecoder"),
    )
    regulator.finish()
    decoder.finish(ignore=("n_spks",))
    section.finish(ignore=("output_type", "only_mask_loss"))
    return config


def read_text_speech_lm(document: Document) -> TextSpeechLMConfig:
    """Read the LM of version 1.

    Raises:
        CheckpointError: another class of LM, a missing or unknown key.
    """
    section = Section.of(document, "llm", document.root.get("llm"))
    _require_class(section, "TransformerLM")
    config = TextSpeechLMConfig(
        text_token_size=section.integer("text_token_size"),
        speech_token_size=section.integer("speech_token_size", high=1 << 20),
        spk_embed_dim=section.integer("spk_embed_dim"),
        llm_input_size=section.integer("llm_input_size"),
        llm_output_size=section.integer("llm_output_size"),
        text_encoder=_read_encoder(section.section("text_encoder"), "ConformerEncoder", "linear"),
        llm=_read_encoder(section.section("llm"), "TransformerEncoder", "linear_legacy"),
        sampling=read_ras(section.section("sampling")),
    )
    if config.text_encoder.input_size != section.integer("text_encoder_input_size"):
        raise section.fail("text_encoder_input_size", "differs from the text encoder's")
    section.finish(ignore=("length_normalized_loss", "lsm_weight"))
    return config


def _require_class(section: Section, name: str) -> None:
    if section.class_name != name:
        raise section.fail("class", f"is {section.class_name!r}, not {name}")


def _read_encoder(section: Section, class_name: str, input_layer: str) -> ConformerConfig:
    _require_class(section, class_name)
    for key, value in {**_FIXED, "input_layer": input_layer}.items():
        if section.has(key) and section.raw(key) != value:
            raise section.fail(key, f"must be {value!r}")
    config = ConformerConfig(
        input_size=section.integer("input_size", high=1 << 15),
        output_size=section.integer("output_size", high=1 << 15),
        attention_heads=section.integer("attention_heads", high=512),
        linear_units=section.integer("linear_units", high=1 << 17),
        num_blocks=section.integer("num_blocks", high=256),
        static_chunk_size=(
            section.integer("static_chunk_size", low=0) if section.has("static_chunk_size") else 0
        ),
    )
    if config.output_size % config.attention_heads:
        raise section.fail("output_size", "must be a multiple of attention_heads")
    section.finish(ignore=_TRAINING)
    return config


def _read_unet(section: Section, class_name: str) -> UNetConfig:
    _require_class(section, class_name)
    causal = class_name == "CausalConditionalDecoder"
    if section.text("act_fn") != "gelu":
        raise section.fail("act_fn", "must be 'gelu'")
    if causal and section.integer("num_decoding_left_chunks", low=-1) != -1:
        raise section.fail("num_decoding_left_chunks", "must be -1")
    config = UNetConfig(
        in_channels=section.integer("in_channels", high=1 << 15),
        out_channels=section.integer("out_channels", high=1 << 15),
        channels=section.integers("channels"),
        attention_head_dim=section.integer("attention_head_dim", high=1024),
        n_blocks=section.integer("n_blocks", high=64),
        num_mid_blocks=section.integer("num_mid_blocks", high=256),
        num_heads=section.integer("num_heads", high=512),
        causal=causal,
        static_chunk_size=section.integer("static_chunk_size") if causal else 0,
    )
    if causal and len(config.channels) > 1:
        raise section.fail("channels", "must be one width: halved frame rates are not causal")
    section.finish(ignore=("dropout",))
    return config
