"""The flow of CosyVoice 1: a conformer, a length regulator and a U-Net, all with full context.

Tokens of 50 Hz are stretched to a mel of 22050 / 256 frames a second (arXiv 2407.05407). Nothing is
causal, so streaming solves overlapping windows and fades from one to the next; `Continuation` is
what a window hands over.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as functional
from torch import Tensor, nn

from antiphon.engine.checkpoint.unet_config import RegulatedFlowConfig
from antiphon.engine.flow.conformer import ConformerEncoder
from antiphon.engine.flow.flow_matching import SolverPlan
from antiphon.engine.flow.unet_matching import UNetFlowMatching

EDGE_TOKENS = 20
"""Tokens at both ends that are stretched apart from the middle: the overlap of two windows, which
must be stretched alike in both."""
SAMPLE_RATE = 22_050
HOP = 256


@dataclass(frozen=True, slots=True)
class Continuation:
    """Noise and mu of the prompt and of the last window's overlap, each (1, frames, mel).

    The next window starts with them, so that both solve the overlap from the same point.
    """

    noise: Tensor
    mu: Tensor


class LengthRegulator(nn.Module):
    """Stretches token features to mel frames, then smooths them (`InterpolateRegulator`)."""

    def __init__(self, channels: int, layers: int) -> None:
        super().__init__()
        parts: list[nn.Module] = []
        for _ in range(layers):
            parts += [
                nn.Conv1d(channels, channels, 3, padding=1),
                nn.GroupNorm(1, channels),
                nn.Mish(),
            ]
        parts.append(nn.Conv1d(channels, channels, 1))
        self.model = nn.Sequential(*parts)

    def forward(
        self, prompt: Tensor, speech: Tensor, prompt_frames: int, frames: int, edge_frames: int
    ) -> Tensor:
        """Map (1, p, mel) and (1, n, mel) to (1, prompt_frames + frames, mel).

        A speech of more than 40 tokens has its first and last 20 stretched to `edge_frames` each.
        """
        pieces = [_stretch(prompt, prompt_frames)] if prompt.shape[1] else []
        if speech.shape[1] > 2 * EDGE_TOKENS:
            middle = speech[:, EDGE_TOKENS:-EDGE_TOKENS]
            pieces += [
                _stretch(speech[:, :EDGE_TOKENS], edge_frames),
                _stretch(middle, frames - 2 * edge_frames),
                _stretch(speech[:, -EDGE_TOKENS:], edge_frames),
            ]
        else:
            pieces.append(_stretch(speech, frames))
        joined = torch.cat(pieces, dim=1).transpose(1, 2)
        result: Tensor = self.model(joined).transpose(1, 2)
        return result


def _stretch(x: Tensor, length: int) -> Tensor:
    return functional.interpolate(x.transpose(1, 2), size=length, mode="linear").transpose(1, 2)


class RegulatedFlow(nn.Module):
    """Weights of `flow.pt` (official `MaskedDiffWithXvec`), keys as published."""

    def __init__(self, config: RegulatedFlowConfig) -> None:
        super().__init__()
        self.config = config
        encoder = config.encoder
        self.input_embedding = nn.Embedding(config.vocab_size, config.input_size)
        self.spk_embed_affine_layer = nn.Linear(config.spk_embed_dim, config.output_size)
        self.encoder = ConformerEncoder(
            encoder.input_size,
            encoder.output_size,
            encoder.attention_heads,
            encoder.linear_units,
            encoder.num_blocks,
        )
        self.encoder_proj = nn.Linear(encoder.output_size, config.output_size)
        self.decoder = UNetFlowMatching(config.estimator)
        self.length_regulator = LengthRegulator(config.regulator_channels, config.regulator_layers)

    def frames(self, tokens: int) -> int:
        """Mel frames of a number of tokens, rounded down."""
        return int(tokens / self.config.input_frame_rate * SAMPLE_RATE / HOP)

    def speaker(self, embedding: Tensor) -> Tensor:
        """Map speaker embeddings as extracted, (batch, 192), to (batch, mel)."""
        mapped: Tensor = self.spk_embed_affine_layer(functional.normalize(embedding, dim=1))
        return mapped

    def encode(self, tokens: Tensor) -> Tensor:
        """Map (1, n) ids to (1, n, mel), before the length regulator."""
        chunk = self.config.encoder.static_chunk_size or None
        encoded = self.encoder(self.input_embedding(tokens.clamp(min=0)), chunk)
        result: Tensor = self.encoder_proj(encoded)
        return result

    def plan_mel(
        self, tokens: Tensor, prompt_tokens: Tensor, prompt_frames: int, frames: int
    ) -> Tensor:
        """Return mu of prompt and speech, (1, prompt_frames + frames, mel)."""
        encoded = self.encode(torch.cat([prompt_tokens, tokens], dim=1))
        prompt = prompt_tokens.shape[1]
        planned: Tensor = self.length_regulator(
            encoded[:, :prompt],
            encoded[:, prompt:],
            prompt_frames,
            frames,
            self.frames(EDGE_TOKENS),
        )
        return planned

    @torch.inference_mode()
    def prepare_window(
        self,
        tokens: Tensor,
        prompt_tokens: Tensor,
        prompt_mel: Tensor,
        noise: Tensor,
        before: Continuation | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, Continuation]:
        """Plan one window of speech, the whole of it or what follows another.

        Takes (1, n) and (1, p) ids, (1, prompt_frames, mel) and the noise of prompt and window,
        (1, prompt_frames + frames, mel), whose length says how many frames the tokens get. Returns
        noise, mu and condition of prompt and window, and what the next window starts with.
        """
        prompt_frames = prompt_mel.shape[1]
        mu = self.plan_mel(tokens, prompt_tokens, prompt_frames, noise.shape[1] - prompt_frames)
        if before is not None:
            # A last window shorter than the overlap shares all of its frames.
            shared = min(before.mu.shape[1], mu.shape[1])
            noise = torch.cat([before.noise[:, :shared], noise[:, shared:]], dim=1)
            mu = torch.cat([before.mu[:, :shared], mu[:, shared:]], dim=1)
        cond = torch.zeros_like(mu)
        cond[:, :prompt_frames] = prompt_mel
        overlap = self.frames(EDGE_TOKENS)
        after = Continuation(
            torch.cat([noise[:, :prompt_frames], noise[:, -overlap:]], dim=1),
            torch.cat([mu[:, :prompt_frames], mu[:, -overlap:]], dim=1),
        )
        return noise, mu, cond, after

    def solve_window(
        self,
        tokens: Tensor,
        prompt_tokens: Tensor,
        prompt_mel: Tensor,
        embedding: Tensor,
        plan: SolverPlan,
        noise: Tensor,
        before: Continuation | None = None,
    ) -> tuple[Tensor, Continuation]:
        """Solve one window (see `prepare_window`) in a voice's (1, 192) embedding.

        Returns (1, frames, mel) of the window alone.
        """
        noise, mu, cond, after = self.prepare_window(
            tokens, prompt_tokens, prompt_mel, noise, before
        )
        with torch.inference_mode():
            speaker = self.speaker(embedding)
        mel = self.decoder.solve(noise, mu, speaker, cond, plan, chunked=False)
        return mel[:, prompt_mel.shape[1] :], after
