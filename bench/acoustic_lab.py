"""What the benchmarks of flow and vocoder share: a model without threads, and speech codes."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from antiphon.engine.acoustic.cached_decoder import cached_decoder
from antiphon.engine.acoustic.core import AcousticCore, Stream
from antiphon.engine.acoustic.interface import AcousticSettings, SpokenHop
from antiphon.engine.acoustic.settings import EngineSettings
from antiphon.engine.acoustic.speech import Vocoder
from antiphon.engine.checkpoint import Checkpoint, open_checkpoint
from antiphon.engine.flow.flow import Flow
from antiphon.engine.flow.flow_matching import plan_solver
from antiphon.engine.flow.step import CachedFlow, solve
from antiphon.engine.prompts import on_the_grid
from antiphon.engine.vocoder.hift import HiFT
from antiphon.engine.voice.voice import AcousticPrompt
from antiphon.engine.watermark.marked import FloatSamples
from antiphon.server.loading import house_checkpoint


def model_switch(parser: argparse.ArgumentParser) -> None:
    """Add --model, which defaults to the checkpoint in the package."""
    parser.add_argument("--model", type=Path, help="a CosyVoice 3 model directory")


def open_model(arguments: argparse.Namespace) -> Checkpoint:
    """Open the chosen checkpoint, else the one in the package."""
    directory = arguments.model or house_checkpoint()
    if directory is None:
        raise SystemExit("There is no checkpoint in the package: name one with --model DIR.")
    return open_checkpoint(directory)


@dataclass(frozen=True)
class Lab:
    """Flow and vocoder of a checkpoint, driven step by step in this thread."""

    flow: Flow
    hift: HiFT
    streamer: CachedFlow
    vocoder: Vocoder
    core: AcousticCore

    @classmethod
    def build(cls, flow: Flow, hift: HiFT, settings: EngineSettings | None = None) -> Lab:
        """Put modules into serving form."""
        settings = settings or EngineSettings(cache_mib=4096, voices_mib=1024)
        decoder = cached_decoder(flow, hift, settings)
        assert isinstance(decoder.streamer, CachedFlow)
        assert isinstance(decoder.vocoder, Vocoder)
        core = AcousticCore(decoder.streamer, decoder.vocoder, settings)
        return cls(flow, hift, decoder.streamer, decoder.vocoder, core)

    @classmethod
    def of(cls, checkpoint: Checkpoint, settings: EngineSettings | None = None) -> Lab:
        """Load a checkpoint."""
        flow, hift = Flow(checkpoint.flow_config), HiFT(checkpoint.hift_config)
        flow.load_state_dict(checkpoint.flow_state_dict())
        hift.load_state_dict(checkpoint.hift_state_dict())
        return cls.build(flow, hift, settings)

    def open(self, prompt: AcousticPrompt, settings: AcousticSettings) -> Stream:
        """Start a turn."""
        voice = self.streamer.voice(
            torch.from_numpy(prompt.tokens),
            torch.from_numpy(prompt.mel),
            torch.from_numpy(prompt.embedding),
        )
        return self.core.open(prompt.key, voice, settings, 0.0)

    def speak(
        self, stream: Stream, tokens: Sequence[int], *, final: bool
    ) -> tuple[FloatSamples, float]:
        """Speak one hop; returns samples and the processor seconds it took."""
        hop = self.core.submit(stream, tuple(tokens), final=final, deadline=None, now=0.0)
        started = self._clock()
        while hop.result is None:
            self.core.step(0.0)
        if not isinstance(hop.result, SpokenHop):
            raise hop.result
        return hop.result.samples, self._clock() - started

    def warm(self, prompt: AcousticPrompt, settings: AcousticSettings) -> float:
        """Solve a voice's prompt; returns the processor seconds it took."""
        return self.speak(self.open(prompt, settings), (), final=False)[1]

    def mel(
        self,
        prompt: AcousticPrompt,
        tokens: Sequence[int],
        settings: AcousticSettings,
        hops: Sequence[int] | None = None,
    ) -> Tensor:
        """The mel a listener gets of an utterance cut into hops (counted as given), (frames, mel).

        What a later hop computes again replaces only frames that were not heard by then.
        """
        plan = plan_solver(settings.solver, settings.steps, settings.cfg_rate)
        voice = self.streamer.voice(
            torch.from_numpy(prompt.tokens),
            torch.from_numpy(prompt.mel),
            torch.from_numpy(prompt.embedding),
        )
        state = self.streamer.start(voice, plan)
        heard, mel = 0, torch.zeros(0, prompt.mel.shape[1])
        sizes = list(hops or [len(tokens)])
        for number, size in enumerate(sizes):
            final = number == len(sizes) - 1
            given = sum(sizes[:number])
            state = self.streamer.append(state, list(tokens[given : given + size]))
            target = self.streamer.available(state, final=final)
            while (solution := self.streamer.next_solution(state, final=final)) is not None:
                solve(self.streamer, solution)
                first, piece = self.streamer.speech(state, solution)
                if len(piece):
                    kept = max(first, heard)
                    mel = torch.cat([mel[:kept], piece[kept - first :]])
                state = self.streamer.finish(state, solution, settings.left_context_chunks)
                if solution.stop == target:
                    break
            heard = max(heard, len(mel) - self.hift.look_ahead)
        return mel

    def _clock(self) -> float:
        """Seconds of this thread, which other work on the machine disturbs less than wall time."""
        if self.flow.input_embedding.weight.is_cuda:
            torch.cuda.synchronize()
            return time.perf_counter()
        return time.thread_time()


def voices(checkpoint: Checkpoint) -> list[AcousticPrompt]:
    """The checkpoint's voices, cut so that prompt and hops meet the grid."""
    prompts = [voice.acoustic for voice in checkpoint.voices.values()]
    return [on_the_grid(prompt) for prompt in prompts if len(prompt.tokens)]


def speech_codes(checkpoint: Checkpoint, count: int) -> list[int]:
    """Speech tokens of real sentences: those of the stored voices, one after the other."""
    stored = [voice.acoustic.tokens for voice in checkpoint.voices.values()]
    joined: Any = np.concatenate([tokens for tokens in stored if len(tokens)])
    return np.resize(joined, count).tolist()  # type: ignore[no-any-return]
