"""The flow of CosyVoice 3: speech tokens and a voice in, mel out."""

from __future__ import annotations

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from antiphon.engine.checkpoint.config import FlowConfig
from antiphon.engine.flow.flow_matching import (
    ConditionalFlowMatching,
    SolverPlan,
    fixed_noise,
    noise_slice,
)
from antiphon.engine.flow.pre_lookahead import PreLookahead


class Flow(nn.Module):
    """Weights of `flow.pt` (official `CausalMaskedDiffWithDiT`), keys as published.

    `load_state_dict(..., strict=True)` takes an official file as it is.
    """

    def __init__(self, config: FlowConfig, dropout: float = 0.0) -> None:
        super().__init__()
        self.config = config
        self.input_embedding = nn.Embedding(config.vocab_size, config.input_size)
        self.spk_embed_affine_layer = nn.Linear(config.spk_embed_dim, config.output_size)
        self.pre_lookahead_layer = PreLookahead(config.pre_lookahead_layer)
        self.decoder = ConditionalFlowMatching(config.decoder, config.estimator, dropout)

    def speaker(self, embedding: Tensor) -> Tensor:
        """Map speaker embeddings as extracted, (batch, 192), to (batch, mel)."""
        mapped: Tensor = self.spk_embed_affine_layer(functional.normalize(embedding, dim=1))
        return mapped

    def plan_mel(
        self, tokens: Tensor, context: Tensor | None = None, *, mask: Tensor | None = None
    ) -> Tensor:
        """Return mu, (batch, frames, mel), for (batch, tokens) speech ids.

        `context`, (batch, 3), are the ids that follow; without it the speech ends here. `mask`,
        (batch, tokens), is True on real tokens: the padding of a training batch then counts as the
        zeros that follow the end.
        """
        embedded = self.embed(tokens)
        if mask is not None:
            embedded = embedded * mask[..., None]
        ahead = None if context is None else self.embed(context)
        planned: Tensor = self.pre_lookahead_layer(embedded, ahead)
        return planned.repeat_interleave(self.config.token_mel_ratio, dim=1)

    def embed(self, tokens: Tensor) -> Tensor:
        """Embeddings of (batch, tokens) ids; upstream counts negative ids as 0."""
        embedded: Tensor = self.input_embedding(tokens.clamp(min=0))
        return embedded

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
        """Compute everything at once without caches: the reference for the streaming engine.

        Takes (1, n) and (1, p) ids, (1, 2p, mel) and (1, 192); returns (1, frames, mel) of the
        speech alone. Unless `final`, the last 3 tokens serve as context only. `chunked=False` is
        upstream's full attention, which its last chunk uses.
        """
        ids = torch.cat([prompt_tokens, tokens], dim=1)
        ahead = self.pre_lookahead_layer.right_context
        mu = self.plan_mel(ids) if final else self.plan_mel(ids[:, :-ahead], ids[:, -ahead:])
        cond = torch.zeros_like(mu)
        cond[:, : prompt_mel.shape[1]] = prompt_mel
        noise = noise_slice(fixed_noise(mu.shape[2]), 0, mu.shape[1])[None].to(mu)
        speaker = self.speaker(embedding)
        mel = self.decoder.solve(noise, mu, speaker, cond, plan, chunked=chunked)
        return mel[:, prompt_mel.shape[1] :]
