"""The flow of CosyVoice 2: a conformer that doubles the token rate, then a causal U-Net.

Both parts see whole blocks of 25 tokens and everything before them, so that finished blocks never
change (arXiv 2412.10117, section 2.3).
"""

from __future__ import annotations

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from antiphon.engine.checkpoint.config import PreLookaheadConfig
from antiphon.engine.checkpoint.unet_config import ConformerConfig, ConformerFlowConfig
from antiphon.engine.flow.conformer import ConformerLayer, InputLayer, run_layers
from antiphon.engine.flow.flow_matching import SolverPlan, fixed_noise, noise_slice
from antiphon.engine.flow.pre_lookahead import PreLookahead
from antiphon.engine.flow.unet_matching import UNetFlowMatching

UP_BLOCKS = 4
"""Layers behind the doubling; upstream fixes their number in code."""
UP_RATE = 2


class UpConv(nn.Module):
    """Repeats every position twice, then convolves over the past."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(dim, dim, 2 * UP_RATE + 1)

    @property
    def tail(self) -> int:
        """Doubled positions before the first that are needed to compute it."""
        return self.conv.kernel_size[0] - 1

    def forward(self, x: Tensor, before: Tensor | None = None) -> Tensor:
        """Map (batch, n, dim) to (batch, 2n, dim).

        `before`, (batch, 2, dim), are the positions that precede; without it speech starts here.
        """
        joined = x if before is None else torch.cat([before, x], dim=1)
        doubled = joined.repeat_interleave(UP_RATE, dim=1).transpose(1, 2)
        if before is None:
            doubled = functional.pad(doubled, (self.tail, 0))
        result: Tensor = self.conv(doubled).transpose(1, 2)
        return result


class UpsampleConformer(nn.Module):
    """Look-ahead, conformer, doubling, second conformer (`UpsampleConformerEncoder`)."""

    def __init__(self, config: ConformerConfig, look_ahead: int) -> None:
        super().__init__()
        dim, heads, hidden = config.output_size, config.attention_heads, config.linear_units
        self.config = config
        self.embed = InputLayer(config.input_size, dim)
        self.pre_lookahead_layer = PreLookahead(PreLookaheadConfig(dim, dim, look_ahead))
        self.encoders = nn.ModuleList(
            [ConformerLayer(dim, heads, hidden) for _ in range(config.num_blocks)]
        )
        self.up_layer = UpConv(dim)
        self.up_embed = InputLayer(dim, dim)
        self.up_encoders = nn.ModuleList(
            [ConformerLayer(dim, heads, hidden) for _ in range(UP_BLOCKS)]
        )
        self.after_norm = nn.LayerNorm(dim, eps=1e-5)

    def forward(self, x: Tensor, context: Tensor | None, *, chunked: bool) -> Tensor:
        """Map (batch, n, dim) token embeddings to (batch, 2n, dim).

        `context`, (batch, 3, dim), are the embeddings that follow; without it speech ends here.
        """
        hidden = self.look_ahead(x, context)
        chunk = self.config.static_chunk_size if chunked else None
        hidden, _ = run_layers(self.encoders, hidden, chunk)
        hidden = self.up_embed(self.up_layer(hidden))
        hidden, _ = run_layers(self.up_encoders, hidden, None if chunk is None else chunk * UP_RATE)
        result: Tensor = self.after_norm(hidden)
        return result

    def look_ahead(self, x: Tensor, context: Tensor | None) -> Tensor:
        """Input layer and look-ahead convolutions, (batch, n, dim)."""
        ahead = None if context is None else self.embed(context)
        result: Tensor = self.pre_lookahead_layer(self.embed(x), ahead)
        return result


class ConformerFlow(nn.Module):
    """Weights of `flow.pt` (official `CausalMaskedDiffWithXvec`), keys as published."""

    def __init__(self, config: ConformerFlowConfig) -> None:
        super().__init__()
        self.config = config
        self.input_embedding = nn.Embedding(config.vocab_size, config.input_size)
        self.spk_embed_affine_layer = nn.Linear(config.spk_embed_dim, config.output_size)
        self.encoder = UpsampleConformer(config.encoder, config.pre_lookahead_len)
        self.encoder_proj = nn.Linear(config.encoder.output_size, config.output_size)
        self.decoder = UNetFlowMatching(config.estimator)

    def speaker(self, embedding: Tensor) -> Tensor:
        """Map speaker embeddings as extracted, (batch, 192), to (batch, mel)."""
        mapped: Tensor = self.spk_embed_affine_layer(functional.normalize(embedding, dim=1))
        return mapped

    def embed(self, tokens: Tensor) -> Tensor:
        """Embeddings of (batch, tokens) ids; upstream counts negative ids as 0."""
        embedded: Tensor = self.input_embedding(tokens.clamp(min=0))
        return embedded

    def plan_mel(self, tokens: Tensor, context: Tensor | None, *, chunked: bool) -> Tensor:
        """Return mu, (batch, 2 · tokens, mel), for (batch, tokens) speech ids.

        `context`, (batch, 3), are the ids that follow; without it the speech ends here.
        """
        ahead = None if context is None else self.embed(context)
        encoded = self.encoder(self.embed(tokens), ahead, chunked=chunked)
        planned: Tensor = self.encoder_proj(encoded)
        return planned

    @torch.inference_mode()
    def solve_whole(
        self,
        tokens: Tensor,
        prompt_tokens: Tensor,
        prompt_mel: Tensor,
        embedding: Tensor,
        plan: SolverPlan,
        *,
        final: bool = True,
        chunked: bool = True,
    ) -> Tensor:
        """Compute everything at once without caches: the reference for streaming.

        Takes (1, n) and (1, p) ids, (1, frames, mel) and (1, 192); returns (1, frames, mel) of the
        speech alone. Unless `final`, the last 3 tokens serve as context only. `chunked=False` is
        upstream's full attention, which its last chunk uses.
        """
        ids = torch.cat([prompt_tokens, tokens], dim=1)
        ahead = self.config.pre_lookahead_len
        known, context = (ids, None) if final else (ids[:, :-ahead], ids[:, -ahead:])
        mu = self.plan_mel(known, context, chunked=chunked)
        cond = torch.zeros_like(mu)
        cond[:, : prompt_mel.shape[1]] = prompt_mel
        noise = noise_slice(fixed_noise(mu.shape[2]), 0, mu.shape[1])[None].to(mu)
        mel = self.decoder.solve(noise, mu, self.speaker(embedding), cond, plan, chunked=chunked)
        return mel[:, prompt_mel.shape[1] :]
