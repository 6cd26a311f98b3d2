"""The acoustic engine of a checkpoint, whatever its generation."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch
from torch import nn

from antiphon.engine.acoustic.cached_decoder import cached_decoder
from antiphon.engine.acoustic.decoder import Decoder
from antiphon.engine.acoustic.engine import DecoderEngine
from antiphon.engine.acoustic.process import ProcessWorker
from antiphon.engine.acoustic.settings import EngineSettings
from antiphon.engine.acoustic.window_speech import WindowSpeechVocoder
from antiphon.engine.acoustic.worker import ThreadWorker
from antiphon.engine.checkpoint import Checkpoint, open_checkpoint
from antiphon.engine.checkpoint.config import CFMConfig, ModelGeneration
from antiphon.engine.checkpoint.weights import load_module
from antiphon.engine.errors import CheckpointError
from antiphon.engine.flow.cosyvoice1 import RegulatedFlow
from antiphon.engine.flow.cosyvoice1_stream import RegulatedStreamer
from antiphon.engine.flow.cosyvoice2 import ConformerFlow
from antiphon.engine.flow.cosyvoice2_stream import ConformerStreamer
from antiphon.engine.flow.flow import Flow
from antiphon.engine.vocoder.hift import HiFT
from antiphon.engine.vocoder.hift_noncausal import CentredHiFT
from antiphon.engine.vocoder.windows import WindowedVocoder

HOLD_FRAMES = {ModelGeneration.V1: 12, ModelGeneration.V2: 8}
"""Mel frames of 12 and 20 ms that the vocoder keeps until more follow: 0.14 and 0.16 s."""


def load_acoustic_engine(
    checkpoint: Checkpoint,
    settings: EngineSettings | None = None,
    device: torch.device | str = "cpu",
) -> DecoderEngine:
    """Load flow and vocoder of a checkpoint of any generation, where the settings say.

    In a process of its own they are still loading when this returns; the engine's `sample_rate`
    waits for them and raises what went wrong.

    Raises:
        CheckpointError: weights that do not fit the YAML.
        InvalidConfiguration: settings out of bounds.
    """
    settings = settings or EngineSettings()
    if settings.own_process:
        make = partial(_load_from, checkpoint.directory, settings, str(device))
        return DecoderEngine(ProcessWorker(make, settings), settings)
    return DecoderEngine(
        ThreadWorker(load_decoder(checkpoint, settings, device), settings), settings
    )


def _load_from(directory: Path, settings: EngineSettings, device: str) -> Decoder:
    return load_decoder(open_checkpoint(directory), settings, device)


def load_decoder(
    checkpoint: Checkpoint,
    settings: EngineSettings | None = None,
    device: torch.device | str = "cpu",
) -> Decoder:
    """Load flow and vocoder of a checkpoint.

    `settings.cache_mib` bounds what all streams of versions 2 and 3 remember; version 1 remembers
    nothing.

    Raises:
        CheckpointError: weights that do not fit the YAML.
        InvalidConfiguration: graphs are asked for where there is no CUDA device.
    """
    settings = settings or EngineSettings()
    if checkpoint.generation is ModelGeneration.V3:
        newest, causal = Flow(checkpoint.flow_config), HiFT(checkpoint.hift_config)
        load_module(newest, checkpoint.flow_state_dict(), "flow.pt")
        load_module(causal, checkpoint.hift_state_dict(), "hift.pt")
        return cached_decoder(newest.to(device), causal.to(device), settings)
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
        else ConformerStreamer(flow, settings.cache_mib << 20)
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
