"""The excitation of CosyVoice 3's vocoder: harmonics of F0 and noise, sample by sample.

Neural source-filter (arXiv 1904.12088) in the causal form of CosyVoice 3: the phase of every
harmonic is held over a mel frame, and the noise is a fixed table indexed by the sample's position.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from antiphon.engine.checkpoint.config import FlowConfig, HiFTConfig
from antiphon.engine.flow.flow_matching import NOISE_FRAMES
from antiphon.engine.vocoder.f0 import FIRST_KERNEL, KERNEL, LAYERS


class SourceNoise:
    """The fixed noise of the excitation, drawn when needed instead of held (259 MB in upstream).

    Upstream draws a table of (7 200 000, harmonics) uniform numbers while it builds its models,
    after reseeding the global generator with 0 in the flow's constructor; the draws between are
    weight initialisations whose sizes are known. The same sequence is replayed here once, in a
    generator of our own, up to the table. Since uniform numbers are drawn one after the other, a
    stream that keeps the generator's state (5 kB) reads the table piece by piece, and simply goes
    on where upstream's table ends at 300 s.
    """

    def __init__(self, flow: FlowConfig, hift: HiFTConfig) -> None:
        self.harmonics = hift.nb_harmonics + 1
        generator = torch.Generator().manual_seed(0)
        torch.randn(flow.output_size, NOISE_FRAMES, generator=generator)
        torch.empty(flow.vocab_size, flow.input_size).normal_(generator=generator)
        _draw_layer(flow.output_size, flow.spk_embed_dim, generator)
        predictor = hift.f0_predictor
        width = predictor.cond_channels
        _draw_layer(width, predictor.in_channels * FIRST_KERNEL, generator)
        for _ in range(LAYERS - 1):
            _draw_layer(width, width * KERNEL, generator)
        _draw_layer(predictor.num_class, width, generator)
        # Initial phases: upstream adds them to a sample that its interpolation never reads.
        torch.rand(self.harmonics, generator=generator)
        self.start = generator.get_state()
        """Generator state before the noise of sample 0."""

    def draw(self, state: Tensor, samples: int) -> tuple[Tensor, Tensor]:
        """Return the next (samples, harmonics) of U[0, 1) and the state after them."""
        generator = torch.Generator()
        generator.set_state(state)
        drawn = torch.rand(samples, self.harmonics, generator=generator)
        return drawn, generator.get_state()


def _draw_layer(outputs: int, fan_in: int, generator: torch.Generator) -> None:
    """Consume the draws of a linear or convolution layer's default initialisation."""
    torch.empty(outputs, fan_in).uniform_(generator=generator)
    torch.empty(outputs).uniform_(generator=generator)


class Source(nn.Module):
    """Mixes the harmonics into one excitation signal (`m_source` of the checkpoint)."""

    def __init__(self, config: HiFTConfig) -> None:
        super().__init__()
        self.config = config
        self.l_linear = nn.Linear(config.nb_harmonics + 1, 1)

    def forward(self, f0: Tensor, cycles: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the excitation, (batch, samples), and the phase after each frame.

        `f0` is (batch, frames) in Hz, `cycles` (batch,) float64 the fundamental's phase before
        them in turns, `noise` (batch, samples, harmonics). There are as many samples as `noise`
        has; the last frame may be longer than that. The phase returned is (batch, frames), float64
        modulo one: it neither drifts nor loses digits however long the speech is.
        """
        phase = self._phase(f0, cycles)
        merged = self.harmonics(f0, phase, noise)
        excitation: Tensor = torch.tanh(self.l_linear(merged)).squeeze(-1)
        return excitation, phase

    def harmonics(self, f0: Tensor, phase: Tensor, noise: Tensor) -> Tensor:
        """Sines and noise before they are mixed, (batch, samples, harmonics)."""
        config = self.config
        orders = torch.arange(1, config.nb_harmonics + 2, device=f0.device, dtype=torch.float64)
        turns = (phase[..., None] * orders) % 1.0
        sines = (turns * (2 * math.pi)).sin().to(noise.dtype) * config.nsf_alpha
        voiced = (f0 > config.nsf_voiced_threshold).to(noise.dtype)[..., None]
        level = voiced * config.nsf_sigma + (1 - voiced) * (config.nsf_alpha / 3)
        samples = noise.shape[1]
        per_frame = config.samples_per_frame
        held = (sines * voiced).repeat_interleave(per_frame, dim=1)[:, :samples]
        level = level.repeat_interleave(per_frame, dim=1)[:, :samples]
        return torch.addcmul(held, level, noise)

    def _phase(self, f0: Tensor, cycles: Tensor) -> Tensor:
        step = f0.double() * (self.config.samples_per_frame / self.config.sampling_rate)
        return (cycles[:, None] + (step % 1.0).cumsum(dim=1)) % 1.0
