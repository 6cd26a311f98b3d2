"""The acoustic engine of a checkpoint, whatever its generation."""

from __future__ import annotations

import torch
from torch import nn

from antiphon.engine.acoustic.decoder import Decoder
from antiphon.engine.acoustic.engine import DecoderEngine, TorchAcousticEngine
from antiphon.engine.acoustic.settings import EngineSettings
from antiphon.engine.acoustic.window_speech import WindowSpeechVocoder
from antiphon.engine.checkpoint import Checkpoint
from antiphon.engine.checkpoint.config import CFMConfig, ModelGeneration
from antiphon.engine.checkpoint.weights import load_module
from antiphon.engine.errors import CheckpointError
from antiphon.engine.flow.cosyvoice1 import RegulatedFlow
from antiphon.engine.flow.cosyvoice1_stream import RegulatedStreamer
from antiphon.engine.flow.cosyvoice2 import ConformerFlow
from antiphon.engine.flow.cosyvoice2_stream import ConformerStreamer
from antiphon.engine.vocoder.hift_noncausal import CentredHiFT
from antiphon.engine.vocoder.windows import WindowedVocoder

HOLD_FRAMES = {ModelGeneration.V1: 12, ModelGeneration.V2: 8}
"""Mel frames of 12 and 20 ms that the vocoder keeps until more follow: 0.14 and 0.16 s."""


def load_acoustic_engine(
    checkpoint: Checkpoint,
    settings: EngineSettings | None = None,
    device: torch.device | str = "cpu",
) -> DecoderEngine:
    """Load flow and vocoder of a checkpoint.

    Raises:
        CheckpointError: weights that do not fit the YAML.
        InvalidConfiguration: settings out of bounds.
    """
    if checkpoint.generation is ModelGeneration.V3:
        return TorchAcousticEngine.load(checkpoint, settings, device)
    settings = settings or EngineSettings()
    return DecoderEngine(load_decoder(checkpoint, device, settings.cache_mib << 20), settings)


def load_decoder(
    checkpoint: Checkpoint, device: torch.device | str = "cpu", memory_bytes: int = 1 << 30
) -> Decoder:
    """Load flow and vocoder of a checkpoint of version 1 or 2.

    `memory_bytes` bounds what all streams of version 2 remember; version 1 remembers nothing.

    Raises:
        CheckpointError: weights that do not fit the YAML.
    """
    flow: RegulatedFlow | ConformerFlow
    if checkpoint.generation is ModelGeneration.V1:
        _check_solver(checkpoint.regulated_flow_config.decoder)
        flow = RegulatedFlow(checkpoint.regulated_flow_config)
    else:
        _check_solver(checkpoint.conformer_flow_config.decoder)
        flow = ConformerFlow(checkpoint.conformer_flow_config)
    load_module(flow, checkpoint.flow_state_dict(), "flow.pt")
    _serve(flow, device)
    hift = CentredHiFT(checkpoint.hift_config)
    load_module(hift, checkpoint.hift_state_dict(), "hift.pt")
    _serve(hift.prepare_for_serving(), device)
    windows = WindowedVocoder(hift, HOLD_FRAMES[checkpoint.generation])
    streamer = (
        RegulatedStreamer(flow)
        if isinstance(flow, RegulatedFlow)
        else ConformerStreamer(flow, memory_bytes)
    )
    return Decoder(streamer, WindowSpeechVocoder(windows), flow.config.vocab_size)


def _serve(module: nn.Module, device: torch.device | str) -> None:
    module.to(device).eval().requires_grad_(False)


def _check_solver(config: CFMConfig) -> None:
    """Refuse schedules that no published checkpoint has and that are not built."""
    if (config.solver, config.t_scheduler) != ("euler", "cosine"):
        raise CheckpointError(
            f"The flow asks for the solver {config.solver} on the schedule {config.t_scheduler}; "
            "known are euler and cosine.",
            field="flow.decoder.cfm_params",
        )
