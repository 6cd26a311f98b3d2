"""Flow and vocoder of CosyVoice 3 in the form that the engine serves."""

from __future__ import annotations

import torch

from antiphon.engine.acoustic.decoder import Decoder
from antiphon.engine.acoustic.settings import EngineSettings
from antiphon.engine.acoustic.speech import Vocoder
from antiphon.engine.errors import InvalidConfiguration
from antiphon.engine.flow.cache import PagePool
from antiphon.engine.flow.flow import Flow
from antiphon.engine.flow.graphs import GPU_BUCKETS, CapturedVelocity
from antiphon.engine.flow.step import CachedFlow
from antiphon.engine.vocoder.graphs import BatchedRows, directly
from antiphon.engine.vocoder.hift import HiFT
from antiphon.engine.vocoder.pieces import CAPTURED_SIZES, Pieces
from antiphon.engine.vocoder.source import SourceNoise

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def cached_decoder(flow: Flow, hift: HiFT, settings: EngineSettings) -> Decoder:
    """Put modules with their weights loaded into serving form.

    Raises:
        InvalidConfiguration: graphs are asked for where there is no CUDA device.
    """
    device = flow.input_embedding.weight.device
    if settings.cuda_graphs and device.type != "cuda":
        raise InvalidConfiguration(
            f"cuda_graphs needs a CUDA device, but the model is on {device}", field="cuda_graphs"
        )
    config = flow.config.estimator
    pool = PagePool(
        layers=config.depth,
        frames=config.static_chunk_size,
        width=config.heads * config.dim_head,
        budget_bytes=settings.cache_mib << 20,
        dtype=DTYPES[settings.precision],
        device=device,
    )
    streamer = CachedFlow(
        flow.eval().requires_grad_(False),
        pool,
        buckets=GPU_BUCKETS if settings.cuda_graphs else None,
        velocity=CapturedVelocity if settings.cuda_graphs else None,
    )
    hift.prepare_for_serving()
    noise = SourceNoise(flow.config, hift.config)
    if settings.cuda_graphs:
        vocoder = Vocoder(hift, noise, BatchedRows(hift), Pieces(CAPTURED_SIZES))
    elif device.type == "cuda":
        vocoder = Vocoder(hift, noise, BatchedRows(hift, directly))
    else:
        vocoder = Vocoder(hift, noise)
    return Decoder(streamer, vocoder, flow.config.vocab_size)
