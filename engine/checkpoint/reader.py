"""YAML sections to dataclasses. Class names choose the reader; what only trains is left alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from antiphon.engine.checkpoint.config import (
    CFMConfig,
    DiTConfig,
    F0PredictorConfig,
    FlowConfig,
    HiFTConfig,
    LMConfig,
    MelConfig,
    ModelGeneration,
    PreLookaheadConfig,
    Qwen2Config,
    RASConfig,
    SpeechIds,
)
from antiphon.engine.checkpoint.document import Document
from antiphon.engine.checkpoint.section import Section
from antiphon.engine.errors import CheckpointError

GENERATION_OF_LM: Final[Mapping[str, ModelGeneration]] = {
    "TransformerLM": ModelGeneration.V1,
    "Qwen2LM": ModelGeneration.V2,
    "CosyVoice3LM": ModelGeneration.V3,
}
_KNOWN_TOP_LEVEL: Final = """
sample_rate text_encoder_input_size llm_input_size llm_output_size spk_embed_dim
qwen_pretrain_path token_frame_rate token_mel_ratio chunk_size num_decoding_left_chunks llm flow
hift get_tokenizer allowed_special feat_extractor
"""
_TRAINING_TOP_LEVEL: Final = """
mel_spec_transform1 hifigan parquet_opener tokenize filter resample truncate compute_fbank
compute_whisper_fbank compute_f0 parse_embedding shuffle sort batch padding data_pipeline
data_pipeline_gan train_conf train_conf_gan __set_seed1 __set_seed2 __set_seed3 __set_seed4
"""
SILENT_IDS_V3: Final = frozenset((1, 2, 28, 29, 55, 248, 494, 2241, 2242, 2322, 2323))
"""Silence of the official version 3 speech tokenizer (6561 codes); other codebooks have others."""
MAX_SILENT_RUN: Final = 5
OFFICIAL_CODES: Final = 6561


def unknown_top_level(document: Document) -> tuple[str, ...]:
    """Return keys that belong neither to the networks nor to the published training recipe."""
    known = {*_KNOWN_TOP_LEVEL.split(), *_TRAINING_TOP_LEVEL.split()}
    return tuple(sorted(set(document.root) - known))


def read_generation(document: Document) -> ModelGeneration:
    """Tell the family by the class name of its speech LM.

    Raises:
        CheckpointError: no `llm` section, or one of a class that is not known.
    """
    section = Section.of(document, "llm", document.root.get("llm"))
    if section.class_name not in GENERATION_OF_LM:
        known = ", ".join(GENERATION_OF_LM)
        raise section.fail("class", f"is {section.class_name!r}; known are {known}")
    return GENERATION_OF_LM[section.class_name]


def read_mel(document: Document) -> MelConfig:
    """Read the feature extractor of the prompt mel."""
    section = Section.of(document, "feat_extractor", document.root.get("feat_extractor"))
    config = MelConfig(
        n_fft=section.integer("n_fft", high=1 << 14),
        num_mels=section.integer("num_mels", high=512),
        sampling_rate=section.integer("sampling_rate", low=8000, high=96000),
        hop_size=section.integer("hop_size", high=1 << 14),
        win_size=section.integer("win_size", high=1 << 14),
        fmin=section.number("fmin", low=0),
        fmax=section.optional_number("fmax"),
        center=section.boolean("center"),
    )
    section.finish()
    return config


def read_backbone(path: Path) -> Qwen2Config:
    """Read `CosyVoice-BlankEN/config.json`.

    Raises:
        CheckpointError: missing, not JSON, not a Qwen2 model, or a feature that no published
            checkpoint uses (scaled rotary positions, sliding window).
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path.name} cannot be read: {error}", field=path.name) from error
    if not isinstance(values, dict) or values.get("model_type") != "qwen2":
        raise CheckpointError(f"{path.name} does not describe a Qwen2 model.", field="model_type")
    section = Section(Document(path, values), "", values, "")
    if section.has("rope_scaling") or values.get("use_sliding_window"):
        raise section.fail("rope_scaling", "and use_sliding_window are not supported")
    if values.get("hidden_act") != "silu":
        raise section.fail("hidden_act", "must be 'silu'")
    config = Qwen2Config(
        vocab_size=section.integer("vocab_size"),
        hidden_size=section.integer("hidden_size", high=1 << 15),
        intermediate_size=section.integer("intermediate_size", high=1 << 17),
        num_hidden_layers=section.integer("num_hidden_layers", high=256),
        num_attention_heads=section.integer("num_attention_heads", high=512),
        num_key_value_heads=section.integer("num_key_value_heads", high=512),
        max_position_embeddings=section.integer("max_position_embeddings"),
        rms_norm_eps=section.number("rms_norm_eps", low=0, high=1),
        rope_theta=section.number("rope_theta", low=1, high=1e12),
    )
    if config.hidden_size % config.num_attention_heads or config.head_dim % 2:
        raise section.fail("hidden_size", "must be an even multiple of num_attention_heads")
    if config.num_attention_heads % config.num_key_value_heads:
        raise section.fail("num_key_value_heads", "must divide num_attention_heads")
    return config


def _ids(generation: ModelGeneration, codes: int) -> SpeechIds:
    """Lay out the special ids after the speech codes, as the published code does."""
    if generation is ModelGeneration.V3:
        return SpeechIds(codes, codes + 1, codes + 2, codes + 3, codes, codes + 200, True)
    return SpeechIds(0, codes, 1, codes + 2, codes, codes + 3, False)


def read_lm(document: Document, backbone: Qwen2Config) -> LMConfig:
    """Read the speech LM of version 2 or 3."""
    generation = read_generation(document)
    section = Section.of(document, "llm", document.root["llm"])
    codes = section.integer("speech_token_size", high=1 << 20)
    mix = section.integers("mix_ratio", high=1024)
    if len(mix) != 2:
        raise section.fail("mix_ratio", "must be two numbers: text tokens, speech tokens")
    for key in ("llm_input_size", "llm_output_size"):
        if section.integer(key) != backbone.hidden_size:
            raise section.fail(key, f"must be the backbone's hidden size, {backbone.hidden_size}")
    section.raw("llm")
    sampling = read_ras(section.section("sampling"))
    section.finish(ignore=("length_normalized_loss", "lsm_weight"))
    official = generation is ModelGeneration.V3 and codes == OFFICIAL_CODES
    return LMConfig(
        speech_token_size=codes,
        mix_ratio=(mix[0], mix[1]),
        sampling=sampling,
        backbone=backbone,
        ids=_ids(generation, codes),
        head_bias=generation is ModelGeneration.V2,
        silent_ids=SILENT_IDS_V3 if official else frozenset(),
        max_silent_run=MAX_SILENT_RUN,
        needs_end_of_prompt=generation is ModelGeneration.V3,
    )


def read_ras(section: Section) -> RASConfig:
    """Read the sampler's settings, of any version."""
    if section.class_name != "ras_sampling":
        raise section.fail("function", f"is {section.class_name!r}; known is ras_sampling")
    config = RASConfig(
        top_p=section.number("top_p", low=1e-6, high=1),
        top_k=section.integer("top_k"),
        win_size=section.integer("win_size", high=1024),
        tau_r=section.number("tau_r", low=0, high=10),
    )
    section.finish()
    return config


def read_flow(document: Document) -> FlowConfig:
    """Read the flow of version 3.

    Raises:
        CheckpointError: another class of flow, a missing or unknown key.
    """
    section = Section.of(document, "flow", document.root.get("flow"))
    if section.class_name != "CausalMaskedDiffWithDiT":
        raise section.fail("class", f"is {section.class_name!r}, not a version 3 flow")
    decoder = section.section("decoder")
    config = FlowConfig(
        input_size=section.integer("input_size"),
        output_size=section.integer("output_size"),
        spk_embed_dim=section.integer("spk_embed_dim"),
        vocab_size=section.integer("vocab_size"),
        input_frame_rate=section.integer("input_frame_rate", high=1000),
        token_mel_ratio=section.integer("token_mel_ratio", high=16),
        pre_lookahead_len=section.integer("pre_lookahead_len", high=64),
        pre_lookahead_layer=_read_lookahead(section.section("pre_lookahead_layer")),
        decoder=read_cfm(decoder),
        estimator=_read_dit(decoder.section("estimator")),
        chunk_size=_top_integer(document, "chunk_size"),
    )
    decoder.finish(ignore=("n_spks",))
    section.finish(ignore=("output_type", "only_mask_loss"))
    return config


def _top_integer(document: Document, key: str) -> int:
    top = Section(document, "", document.root, "")
    return top.integer(key)


def _read_lookahead(section: Section) -> PreLookaheadConfig:
    config = PreLookaheadConfig(
        in_channels=section.integer("in_channels"),
        channels=section.integer("channels"),
        pre_lookahead_len=section.integer("pre_lookahead_len", high=64),
    )
    section.finish()
    return config


def read_cfm(decoder: Section) -> CFMConfig:
    """Read the solver's settings; the caller reads `estimator` and finishes the section."""
    params = decoder.section("cfm_params")
    content = params.section("content") if params.class_name == "DictConfig" else params
    config = CFMConfig(
        in_channels=decoder.integer("in_channels"),
        spk_emb_dim=decoder.integer("spk_emb_dim"),
        sigma_min=content.number("sigma_min", low=0, high=1),
        solver=content.text("solver"),
        t_scheduler=content.text("t_scheduler"),
        inference_cfg_rate=content.number("inference_cfg_rate", low=0, high=10),
    )
    content.finish(ignore=("training_cfg_rate", "reg_loss_type"))
    return config


def _read_dit(section: Section) -> DiTConfig:
    if section.class_name != "DiT":
        raise section.fail("class", f"is {section.class_name!r}, not DiT")
    config = DiTConfig(
        dim=section.integer("dim"),
        depth=section.integer("depth", high=256),
        heads=section.integer("heads", high=512),
        dim_head=section.integer("dim_head", high=1024),
        ff_mult=section.integer("ff_mult", high=64),
        mel_dim=section.integer("mel_dim"),
        mu_dim=section.integer("mu_dim"),
        spk_dim=section.integer("spk_dim"),
        out_channels=section.integer("out_channels"),
        static_chunk_size=section.integer("static_chunk_size"),
        num_decoding_left_chunks=section.integer("num_decoding_left_chunks", low=-1),
    )
    section.finish(ignore=("dropout",))
    return config


def read_hift(document: Document) -> HiFTConfig:
    """Read the vocoder of any version."""
    section = Section.of(document, "hift", document.root.get("hift"))
    classes = ("HiFTGenerator", "CausalHiFTGenerator")
    if section.class_name not in classes:
        raise section.fail("class", f"is {section.class_name!r}; known are {', '.join(classes)}")
    causal = section.class_name == "CausalHiFTGenerator"
    istft = section.section("istft_params")
    config = HiFTConfig(
        in_channels=section.integer("in_channels"),
        base_channels=section.integer("base_channels"),
        nb_harmonics=section.integer("nb_harmonics", high=256),
        sampling_rate=section.integer("sampling_rate", low=8000, high=96000),
        nsf_alpha=section.number("nsf_alpha"),
        nsf_sigma=section.number("nsf_sigma"),
        nsf_voiced_threshold=section.number("nsf_voiced_threshold"),
        upsample_rates=section.integers("upsample_rates"),
        upsample_kernel_sizes=section.integers("upsample_kernel_sizes"),
        istft_n_fft=istft.integer("n_fft"),
        istft_hop_len=istft.integer("hop_len"),
        resblock_kernel_sizes=section.integers("resblock_kernel_sizes"),
        resblock_dilation_sizes=section.integer_lists("resblock_dilation_sizes"),
        source_resblock_kernel_sizes=section.integers("source_resblock_kernel_sizes"),
        source_resblock_dilation_sizes=section.integer_lists("source_resblock_dilation_sizes"),
        lrelu_slope=section.number("lrelu_slope"),
        audio_limit=section.number("audio_limit", low=0, high=1),
        f0_predictor=_read_f0(section.section("f0_predictor")),
        causal=causal,
        conv_pre_look_right=section.integer("conv_pre_look_right", low=0) if causal else 0,
    )
    istft.finish()
    section.finish()
    return config


def _read_f0(section: Section) -> F0PredictorConfig:
    classes = {"ConvRNNF0Predictor": False, "CausalConvRNNF0Predictor": True}
    if section.class_name not in classes:
        raise section.fail("class", f"is {section.class_name!r}; known are {', '.join(classes)}")
    config = F0PredictorConfig(
        num_class=section.integer("num_class"),
        in_channels=section.integer("in_channels"),
        cond_channels=section.integer("cond_channels"),
        causal=classes[section.class_name],
    )
    section.finish()
    return config


def read_rates(document: Document, generation: ModelGeneration) -> tuple[int, int, int]:
    """Return sample rate, speech tokens a second, mel frames a token (version 1: 1 of 50 Hz)."""
    sample_rate = _top_integer(document, "sample_rate")
    if generation is ModelGeneration.V1:
        flow: Any = Section.of(document, "flow", document.root.get("flow"))
        return sample_rate, flow.integer("input_frame_rate", high=1000), 1
    return (
        sample_rate,
        _top_integer(document, "token_frame_rate"),
        _top_integer(document, "token_mel_ratio"),
    )
