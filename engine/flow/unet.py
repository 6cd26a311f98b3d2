"""U-Net velocity estimators of CosyVoice 1 (full context) and 2 (causal).

Module and parameter names are those of the official checkpoints. One network serves both: version 2
has causal convolutions, layer norm and a single width; version 1 has centred convolutions, group
norm and halves its frame rate between widths.

Sources: Matcha-TTS (arXiv 2309.03199) for the network, CosyVoice 2 (arXiv 2412.10117) for its
causal form.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from antiphon.engine.checkpoint.unet_config import UNetConfig
from antiphon.engine.flow.conformer import chunk_mask
from antiphon.engine.flow.unet_layers import (
    Block,
    Downsample,
    Memory,
    ResnetBlock,
    TimeMLP,
    TransformerBlock,
    Upsample,
    convolution,
    run_convolution,
)


class Stage(nn.ModuleList):
    """A residual block, transformers and, but for the middle, a change of the frame rate."""

    def __init__(
        self, config: UNetConfig, channels: int, out: int, resize: nn.Module | None
    ) -> None:
        transformers = [
            TransformerBlock(out, config.num_heads, config.attention_head_dim)
            for _ in range(config.n_blocks)
        ]
        super().__init__(
            [
                ResnetBlock(channels, out, 4 * config.channels[0], config.causal),
                nn.ModuleList(transformers),
            ]
        )
        if resize is not None:
            self.append(resize)

    @property
    def resnet(self) -> ResnetBlock:
        """The residual block."""
        return cast(ResnetBlock, self[0])

    @property
    def transformers(self) -> list[TransformerBlock]:
        """The transformer blocks."""
        return [cast(TransformerBlock, block) for block in cast(nn.ModuleList, self[1])]

    def forward(self, hidden: Tensor, time: Tensor, mask: Tensor | None, memory: Memory) -> Tensor:
        """Map (batch, channels, frames) to (batch, out, frames), at the same rate."""
        frames = cast(Tensor, self.resnet(hidden, time, memory)).transpose(1, 2)
        for block in self.transformers:
            frames = cast(Tensor, block(frames, mask, memory))
        return frames.transpose(1, 2)

    def resize(self, hidden: Tensor, memory: Memory) -> Tensor:
        """Halve or double the frame rate, or convolve where there is nothing to change."""
        return run_convolution(self[2], hidden, memory)


class UNet(nn.Module):
    """Velocity of every mel frame at one flow time."""

    def __init__(self, config: UNetConfig) -> None:
        super().__init__()
        self.config = config
        widths = config.channels
        self.time_mlp = TimeMLP(config.in_channels, 4 * widths[0])
        channels = config.in_channels
        innermost, outermost = len(widths) - 1, 0
        down = []
        for level, width in enumerate(widths):
            same_rate = level == innermost
            resize = convolution(width, width, config.causal) if same_rate else Downsample(width)
            down.append(Stage(config, channels, width, resize))
            channels = width
        self.down_blocks = nn.ModuleList(down)
        self.mid_blocks = nn.ModuleList(
            [Stage(config, channels, channels, None) for _ in range(config.num_mid_blocks)]
        )
        up = []
        for level in range(innermost, outermost - 1, -1):
            width = widths[level]
            same_rate = level == outermost
            widen = convolution(width, width, config.causal) if same_rate else Upsample(width)
            up.append(Stage(config, channels + width, width, widen))
            channels = width
        self.up_blocks = nn.ModuleList(up)
        self.final_block = Block(channels, channels, config.causal)
        self.final_proj = nn.Conv1d(channels, config.out_channels, 1)

    def forward(
        self,
        x: Tensor,
        mu: Tensor,
        time: Tensor,
        speaker: Tensor,
        cond: Tensor,
        *,
        chunked: bool = False,
        memory: Memory | None = None,
    ) -> Tensor:
        """Return the velocity, (batch, frames, mel).

        `x`, `mu` and `cond` are (batch, frames, mel), `speaker` is (batch, mel), `time` (batch,).
        `chunked` limits attention to the end of a frame's own block; `memory` holds the blocks
        before, collects what these leave, and makes a mask needless (both version 2 alone).
        """
        memory = Memory() if memory is None else memory
        speaker = speaker[:, None].expand(-1, x.shape[1], -1)
        hidden = torch.cat([x, mu, speaker, cond], dim=-1).transpose(1, 2)
        embedded_time = self.time_mlp(time)
        mask = None
        if chunked:
            mask = chunk_mask(x.shape[1], x.shape[1], self.config.static_chunk_size, x.device)
        skips: list[Tensor] = []
        for stage in self.stages(self.down_blocks):
            hidden = stage(hidden, embedded_time, mask, memory)
            skips.append(hidden)
            hidden = stage.resize(hidden, memory)
        for stage in self.stages(self.mid_blocks):
            hidden = stage(hidden, embedded_time, mask, memory)
        for stage in self.stages(self.up_blocks):
            skip = skips.pop()
            # An odd number of frames comes back from halving one longer.
            joined = torch.cat([hidden[..., : skip.shape[2]], skip], dim=1)
            hidden = stage.resize(stage(joined, embedded_time, mask, memory), memory)
        velocity: Tensor = self.final_proj(self.final_block(hidden, memory))
        return velocity.transpose(1, 2)

    @staticmethod
    def stages(blocks: nn.ModuleList) -> list[Stage]:
        """The stages of one arm of the U, typed."""
        return [cast(Stage, stage) for stage in blocks]
