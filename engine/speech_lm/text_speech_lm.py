"""The speech LM of CosyVoice 1: a causal text encoder, then a speaker-conditioned transformer.

    start | speaker | encoded prompt text and text | task | prompt speech → speech

Module and parameter names are those of the official checkpoints (`TransformerLM`; CosyVoice,
arXiv 2407.05407). Text is embedded by an encoder of its own, so a sequence is not made of ids alone
as in later versions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from antiphon.engine.checkpoint.unet_config import ConformerConfig, TextSpeechLMConfig
from antiphon.engine.flow.conformer import (
    ConformerEncoder,
    InputLayer,
    RelativeAttention,
    TransformerLayer,
    relative_positions,
    run_layers,
)
from antiphon.engine.voice.voice import LMPrompt

START, TASK = 0, 1
"""Rows of `llm_embedding`."""


class SequenceMemory:
    """Keys and values of one sequence, in buffers that double; owned by one request."""

    def __init__(self, layers: int) -> None:
        self.length = 0
        self._layers = layers
        self._buffer: Tensor | None = None

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Store (1, heads, n, dim) behind what is there; return all of the layer's."""
        stop = self.length + keys.shape[2]
        if self._buffer is None or self._buffer.shape[3] < stop:
            self._grow(keys, stop)
        assert self._buffer is not None
        for kind, new in enumerate((keys, values)):
            self._buffer[layer, kind, :, self.length : stop] = new[0]
        seen = self._buffer[layer, :, :, :stop]
        return seen[0][None], seen[1][None]

    def _grow(self, like: Tensor, wanted: int) -> None:
        capacity = max(256, 1 << (wanted - 1).bit_length())
        _, heads, _, dim = like.shape
        grown = like.new_empty(self._layers, 2, heads, capacity, dim)
        if self._buffer is not None:
            grown[:, :, :, : self.length] = self._buffer[:, :, :, : self.length]
        self._buffer = grown


class Distances:
    """Projected sinusoids of the distances 0, 1, 2, … for each layer, made once for all requests.

    A step has one query, which looks back over all distances; projecting them anew at each step
    would cost more than the step.
    """

    def __init__(self, layers: list[TransformerLayer], dim: int) -> None:
        self._layers = layers
        self._dim = dim
        self._tables: list[Tensor] = []

    def of(self, layer: int, count: int) -> Tensor:
        """Return (heads, count, dim / heads), distance 0 first."""
        if not self._tables or self._tables[0].shape[1] < count:
            size = max(512, 1 << (count - 1).bit_length())
            weight = self._layers[0].self_attn.linear_pos.weight
            waves = relative_positions(size - 1, 1, size, self._dim).flip(0).to(weight)
            self._tables = [self._project(each.self_attn, waves) for each in self._layers]
        return self._tables[layer][:, :count]

    @staticmethod
    def _project(attention: RelativeAttention, waves: Tensor) -> Tensor:
        packed = attention.linear_pos(waves)
        return cast(Tensor, packed.view(len(waves), attention.heads, -1).transpose(0, 1))


class SpeechTransformer(nn.Module):
    """The decoder stack (`TransformerEncoder` of the checkpoint)."""

    def __init__(self, config: ConformerConfig) -> None:
        super().__init__()
        self.embed = InputLayer(config.input_size, config.output_size, legacy=True)
        self.after_norm = nn.LayerNorm(config.output_size, eps=1e-5)
        self.encoders = nn.ModuleList(
            [
                TransformerLayer(config.output_size, config.attention_heads, config.linear_units)
                for _ in range(config.num_blocks)
            ]
        )

    @property
    def layers(self) -> list[TransformerLayer]:
        """The layers, typed."""
        return [cast(TransformerLayer, layer) for layer in self.encoders]


class TextSpeechLM(nn.Module):
    """Weights of `llm.pt` of version 1, keys as published."""

    def __init__(self, config: TextSpeechLMConfig) -> None:
        super().__init__()
        self.config = config
        encoder, width = config.text_encoder, config.llm_input_size
        self.text_embedding = nn.Embedding(config.text_token_size, encoder.input_size)
        self.text_encoder = ConformerEncoder(
            encoder.input_size,
            encoder.output_size,
            encoder.attention_heads,
            encoder.linear_units,
            encoder.num_blocks,
        )
        self.text_encoder_affine_layer = nn.Linear(encoder.output_size, width)
        self.llm_embedding = nn.Embedding(2, width)
        self.llm = SpeechTransformer(config.llm)
        self.llm_decoder = nn.Linear(config.llm_output_size, config.speech_token_size + 1)
        self.speech_embedding = nn.Embedding(config.speech_token_size, width)
        self.spk_embed_affine_layer = nn.Linear(config.spk_embed_dim, width)
        self._distances = Distances(self.llm.layers, config.llm.output_size)

    @property
    def eos(self) -> int:
        """The id that ends speech: the one row of the head behind the codes."""
        return self.config.speech_token_size

    @torch.inference_mode()
    def encode_text(self, text_ids: Sequence[int]) -> Tensor:
        """Return (1, n, width) of text ids; each sees itself and what precedes it."""
        ids = torch.tensor([list(text_ids)], dtype=torch.long, device=self._device)
        chunk = self.config.text_encoder.static_chunk_size or None
        encoded = self.text_encoder(self.text_embedding(ids), chunk)
        result: Tensor = self.text_encoder_affine_layer(encoded)
        return result

    @torch.inference_mode()
    def prefix(self, prompt: LMPrompt, text_ids: Sequence[int]) -> Tensor:
        """Return the inputs of the first call, (1, n, width)."""
        parts = [self.llm_embedding.weight[START][None, None]]
        if prompt.speaker:
            speaker = torch.tensor([prompt.speaker], device=self._device)
            speaker = self.spk_embed_affine_layer(functional.normalize(speaker, dim=1))
            parts.append(speaker[:, None])
        text = (*prompt.text_ids, *text_ids)
        if text:
            parts.append(self.encode_text(text))
        parts.append(self.llm_embedding.weight[TASK][None, None])
        if prompt.speech_ids:
            ids = torch.tensor([prompt.speech_ids], device=self._device)
            parts.append(self.speech_embedding(ids))
        return torch.cat(parts, dim=1)

    @torch.inference_mode()
    def embed_speech(self, token: int) -> Tensor:
        """Return (1, 1, width) of a speech id."""
        return self.speech_embedding.weight[token][None, None]

    @torch.inference_mode()
    def start(self, inputs: Tensor, memory: SequenceMemory) -> Tensor:
        """Feed the first inputs, (1, n, width); return the logits after the last, (1, rows)."""
        hidden, states = run_layers(self.llm.encoders, self.llm.embed(inputs), 1)
        for index, state in enumerate(states):
            memory.append(index, state.keys, state.values)
        memory.length = inputs.shape[1]
        return self._head(hidden)

    @torch.inference_mode()
    def step(self, inputs: Tensor, memory: SequenceMemory) -> Tensor:
        """Feed one more input, (1, 1, width); return the logits after it, (1, rows)."""
        hidden: Tensor = self.llm.embed(inputs)
        for index, layer in enumerate(self.llm.layers):
            attention = layer.self_attn
            hidden = hidden + self._attend(attention, layer.norm1(hidden), index, memory)
            hidden = hidden + layer.feed_forward(layer.norm2(hidden))
        memory.length += 1
        return self._head(hidden)

    def _attend(
        self, attention: RelativeAttention, x: Tensor, index: int, memory: SequenceMemory
    ) -> Tensor:
        """`RelativeAttention` for one query at the end of what the memory holds."""
        query, key, value = (
            layer(x).view(1, 1, attention.heads, -1).transpose(1, 2)
            for layer in (attention.linear_q, attention.linear_k, attention.linear_v)
        )
        keys, values = memory.append(index, key, value)
        distances = self._distances.of(index, keys.shape[2]).flip(1)
        by_distance = (query + attention.pos_bias_v[:, None]) @ distances.transpose(-2, -1)
        mixed = functional.scaled_dot_product_attention(
            query + attention.pos_bias_u[:, None],
            keys,
            values,
            attn_mask=by_distance / math.sqrt(query.shape[-1]),
        )
        result: Tensor = attention.linear_out(mixed.transpose(1, 2).flatten(2))
        return result

    def _head(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.llm_decoder(self.llm.after_norm(hidden[:, -1]))
        return logits

    @property
    def _device(self) -> torch.device:
        return self.llm_embedding.weight.device
