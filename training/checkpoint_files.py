"""Files of the official layout that are text: the YAML and the tokenizer folder."""

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from antiphon.engine.checkpoint.config import FlowConfig, HiFTConfig, LMConfig
from antiphon.training.text_ids import SPECIAL, byte_symbols


def model_yaml(lm: LMConfig, flow: FlowConfig, hift: HiFTConfig) -> str:
    """`cosyvoice3.yaml` with the published structure and these dimensions."""
    dit, ras, look = flow.estimator, lm.sampling, flow.pre_lookahead_layer

    def listed(values: tuple[object, ...]) -> str:
        return json.dumps(values)

    return f"""\
sample_rate: 24000
llm_input_size: {lm.backbone.hidden_size}
llm_output_size: {lm.backbone.hidden_size}
spk_embed_dim: {flow.spk_embed_dim}
qwen_pretrain_path: ''
token_frame_rate: {flow.input_frame_rate}
token_mel_ratio: {flow.token_mel_ratio}
chunk_size: {flow.chunk_size}
num_decoding_left_chunks: {dit.num_decoding_left_chunks}

llm: !new:cosyvoice.llm.llm.CosyVoice3LM
    llm_input_size: !ref <llm_input_size>
    llm_output_size: !ref <llm_output_size>
    speech_token_size: {lm.speech_token_size}
    length_normalized_loss: True
    lsm_weight: 0
    mix_ratio: {listed(lm.mix_ratio)}
    llm: !new:cosyvoice.llm.llm.Qwen2Encoder
        pretrain_path: !ref <qwen_pretrain_path>
    sampling: !name:cosyvoice.utils.common.ras_sampling
        top_p: {ras.top_p}
        top_k: {ras.top_k}
        win_size: {ras.win_size}
        tau_r: {ras.tau_r}

flow: !new:cosyvoice.flow.flow.CausalMaskedDiffWithDiT
    input_size: {flow.input_size}
    output_size: {flow.output_size}
    spk_embed_dim: !ref <spk_embed_dim>
    output_type: 'mel'
    vocab_size: {flow.vocab_size}
    input_frame_rate: !ref <token_frame_rate>
    only_mask_loss: True
    token_mel_ratio: !ref <token_mel_ratio>
    pre_lookahead_len: {flow.pre_lookahead_len}
    pre_lookahead_layer: !new:cosyvoice.transformer.upsample_encoder.PreLookaheadLayer
        in_channels: {look.in_channels}
        channels: {look.channels}
        pre_lookahead_len: {look.pre_lookahead_len}
    decoder: !new:cosyvoice.flow.flow_matching.CausalConditionalCFM
        in_channels: {flow.decoder.in_channels}
        n_spks: 1
        spk_emb_dim: {flow.decoder.spk_emb_dim}
        cfm_params: !new:omegaconf.DictConfig
            content:
                sigma_min: {flow.decoder.sigma_min}
                solver: '{flow.decoder.solver}'
                t_scheduler: '{flow.decoder.t_scheduler}'
                training_cfg_rate: 0.2
                inference_cfg_rate: {flow.decoder.inference_cfg_rate}
                reg_loss_type: 'l1'
        estimator: !new:cosyvoice.flow.DiT.dit.DiT
            dim: {dit.dim}
            depth: {dit.depth}
            heads: {dit.heads}
            dim_head: {dit.dim_head}
            ff_mult: {dit.ff_mult}
            dropout: 0.0
            mel_dim: {dit.mel_dim}
            mu_dim: {dit.mu_dim}
            spk_dim: {dit.spk_dim}
            out_channels: {dit.out_channels}
            static_chunk_size: !ref <chunk_size> * <token_mel_ratio>
            num_decoding_left_chunks: !ref <num_decoding_left_chunks>

hift: !new:cosyvoice.hifigan.generator.CausalHiFTGenerator
    in_channels: {hift.in_channels}
    base_channels: {hift.base_channels}
    nb_harmonics: {hift.nb_harmonics}
    sampling_rate: !ref <sample_rate>
    nsf_alpha: {hift.nsf_alpha}
    nsf_sigma: {hift.nsf_sigma}
    nsf_voiced_threshold: {hift.nsf_voiced_threshold:g}
    upsample_rates: {listed(hift.upsample_rates)}
    upsample_kernel_sizes: {listed(hift.upsample_kernel_sizes)}
    istft_params:
        n_fft: {hift.istft_n_fft}
        hop_len: {hift.istft_hop_len}
    resblock_kernel_sizes: {listed(hift.resblock_kernel_sizes)}
    resblock_dilation_sizes: {listed(hift.resblock_dilation_sizes)}
    source_resblock_kernel_sizes: {listed(hift.source_resblock_kernel_sizes)}
    source_resblock_dilation_sizes: {listed(hift.source_resblock_dilation_sizes)}
    lrelu_slope: {hift.lrelu_slope}
    audio_limit: {hift.audio_limit}
    conv_pre_look_right: {hift.conv_pre_look_right}
    f0_predictor: !new:cosyvoice.hifigan.f0_predictor.CausalConvRNNF0Predictor
        num_class: {hift.f0_predictor.num_class}
        in_channels: {hift.f0_predictor.in_channels}
        cond_channels: {hift.f0_predictor.cond_channels}

get_tokenizer: !name:cosyvoice.tokenizer.tokenizer.get_qwen_tokenizer
    token_path: !ref <qwen_pretrain_path>
    skip_special_tokens: True
    version: cosyvoice3
allowed_special: 'all'
feat_extractor: !name:matcha.utils.audio.mel_spectrogram
    n_fft: 1920
    num_mels: {flow.output_size}
    sampling_rate: !ref <sample_rate>
    hop_size: 480
    win_size: 1920
    fmin: 0
    fmax: null
    center: False
"""


def write_tokenizer_folder(folder: Path, lm: LMConfig) -> None:
    """The Qwen2 folder without weights: configuration and a byte-level tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    backbone = lm.backbone
    config = {
        "architectures": ["Qwen2ForCausalLM"],
        "attention_dropout": 0.0,
        "bos_token_id": 256,
        "eos_token_id": 256,
        "hidden_act": "silu",
        "hidden_size": backbone.hidden_size,
        "initializer_range": 0.02,
        "intermediate_size": backbone.intermediate_size,
        "max_position_embeddings": backbone.max_position_embeddings,
        "model_type": "qwen2",
        "num_attention_heads": backbone.num_attention_heads,
        "num_hidden_layers": backbone.num_hidden_layers,
        "num_key_value_heads": backbone.num_key_value_heads,
        "rms_norm_eps": backbone.rms_norm_eps,
        "rope_theta": backbone.rope_theta,
        "tie_word_embeddings": True,
        "torch_dtype": "float16",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": backbone.vocab_size,
    }
    _write_json(folder / "config.json", config)
    _write_json(folder / "generation_config.json", {"bos_token_id": 256, "eos_token_id": 256})
    vocabulary = {symbol: number for number, symbol in enumerate(byte_symbols())}
    _write_json(folder / "vocab.json", vocabulary)
    (folder / "merges.txt").write_text("#version: 0.2\n", "utf-8")
    added = {
        str(256 + number): {
            "content": token,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": True,
        }
        for number, token in enumerate(SPECIAL)
    }
    settings = {
        "added_tokens_decoder": added,
        "add_prefix_space": False,
        "eos_token": "<|endoftext|>",
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "Qwen2Tokenizer",
    }
    _write_json(folder / "tokenizer_config.json", settings)
    tokenizer = Tokenizer(BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", "utf-8")
