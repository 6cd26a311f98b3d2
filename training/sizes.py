"""Dimensions of the nano checkpoint, as the engine's configurations."""

from typing import Final

from antiphon.engine.checkpoint.config import (
    CFMConfig,
    DiTConfig,
    F0PredictorConfig,
    FlowConfig,
    HiFTConfig,
    LMConfig,
    PreLookaheadConfig,
    Qwen2Config,
    RASConfig,
    SpeechIds,
)
from antiphon.training.text_ids import TEXT_TOKENS

SPEECH_CODES: Final = 240
SPEAKER_DIM: Final = 192
CHUNK_TOKENS: Final = 25

HIFT: Final = HiFTConfig(
    in_channels=80,
    base_channels=128,
    nb_harmonics=8,
    sampling_rate=24000,
    nsf_alpha=0.1,
    nsf_sigma=0.003,
    nsf_voiced_threshold=50.0,
    upsample_rates=(8, 5, 3),
    upsample_kernel_sizes=(16, 11, 7),
    istft_n_fft=16,
    istft_hop_len=4,
    resblock_kernel_sizes=(3, 7),
    resblock_dilation_sizes=((1, 3), (1, 3)),
    source_resblock_kernel_sizes=(7, 7, 7),
    source_resblock_dilation_sizes=((1,), (1,), (1,)),
    lrelu_slope=0.1,
    audio_limit=0.99,
    f0_predictor=F0PredictorConfig(num_class=1, in_channels=80, cond_channels=128, causal=True),
    causal=True,
    conv_pre_look_right=4,
)

FLOW: Final = FlowConfig(
    input_size=80,
    output_size=80,
    spk_embed_dim=SPEAKER_DIM,
    vocab_size=SPEECH_CODES,
    input_frame_rate=25,
    token_mel_ratio=2,
    pre_lookahead_len=3,
    pre_lookahead_layer=PreLookaheadConfig(in_channels=80, channels=256, pre_lookahead_len=3),
    decoder=CFMConfig(
        in_channels=240,
        spk_emb_dim=80,
        sigma_min=1e-6,
        solver="euler",
        t_scheduler="cosine",
        inference_cfg_rate=0.7,
    ),
    estimator=DiTConfig(
        dim=192,
        depth=4,
        heads=4,
        dim_head=48,
        ff_mult=2,
        mel_dim=80,
        mu_dim=80,
        spk_dim=80,
        out_channels=80,
        static_chunk_size=2 * CHUNK_TOKENS,
        num_decoding_left_chunks=-1,
    ),
    chunk_size=CHUNK_TOKENS,
)

LM: Final = LMConfig(
    speech_token_size=SPEECH_CODES,
    mix_ratio=(8, 8),
    sampling=RASConfig(top_p=0.8, top_k=25, win_size=10, tau_r=0.8),
    backbone=Qwen2Config(
        vocab_size=TEXT_TOKENS,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=5,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        rms_norm_eps=1e-6,
        rope_theta=10000.0,
    ),
    ids=SpeechIds(
        sos=SPEECH_CODES,
        eos=SPEECH_CODES + 1,
        task=SPEECH_CODES + 2,
        fill=SPEECH_CODES + 3,
        first_stop=SPEECH_CODES,
        rows=SPEECH_CODES + 200,
        sos_and_task_are_speech_rows=True,
    ),
    head_bias=False,
    silent_ids=frozenset(),
    max_silent_run=5,
    needs_end_of_prompt=True,
)
