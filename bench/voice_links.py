"""The links of the voice gate without a server: the teacher, its mel and its codes, one by one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from antiphon.engine.checkpoint import Checkpoint
from antiphon.engine.checkpoint.weights import load_module
from antiphon.engine.flow.flow import Flow
from antiphon.engine.flow.flow_matching import plan_solver
from antiphon.engine.vocoder.hift import HiFT
from antiphon.engine.voice.features import log_mel
from antiphon.engine.voice.voice import AcousticPrompt
from antiphon.training.data.corpus import Utterance
from antiphon.training.data.hibari import Hibari
from antiphon.training.data.make import CorpusPlan, utter
from antiphon.training.data.sentences import Sentence
from antiphon.training.data.speakers import Warp
from bench import voice_measures as measure
from bench.asr import transcribe, word_errors
from bench.report import Row


@dataclass
class Link:
    """Figures of one link, gathered sentence by sentence."""

    name: str
    errors: int = 0
    words: int = 0
    scores: list[float] = field(default_factory=list)
    pitch: list[float] = field(default_factory=list)
    clicks: list[float] = field(default_factory=list)
    speech_s: float = 0.0
    used_s: float = 0.0
    """Processor seconds on one core."""
    first_ms: list[float] = field(default_factory=list)

    def hear(self, sentence: str, samples: measure.Samples) -> None:
        """Transcribe and score one sentence."""
        errors, words = word_errors(sentence, transcribe(samples, measure.RATE_HZ))
        self.errors += errors
        self.words += words
        self.scores.append(measure.opinion_score(samples))
        self.speech_s += len(samples) / measure.RATE_HZ

    @property
    def word_error_rate(self) -> float:
        """Errors over words."""
        return self.errors / max(1, self.words)

    def row(self) -> Row:
        """Return the figures as a table row."""
        return {
            "link": self.name,
            "WER %": 100 * self.word_error_rate,
            "DNSMOS": measure.mean(self.scores),
            "F0 corr": measure.mean(self.pitch),
            "click dB": measure.mean(self.clicks),
            "RTF": self.used_s / self.speech_s if self.used_s else None,
            "first ms": measure.mean(self.first_ms),
        }


class Parts:
    """Flow and vocoder of a checkpoint, run whole."""

    def __init__(self, checkpoint: Checkpoint, solver_steps: int) -> None:
        self.checkpoint = checkpoint
        self.flow = Flow(checkpoint.flow_config).eval()
        load_module(self.flow, checkpoint.flow_state_dict(), "flow.pt")
        self.hift = HiFT(checkpoint.hift_config)
        load_module(self.hift, checkpoint.hift_state_dict(), "hift.pt")
        self.hift.prepare_for_serving()
        rate = checkpoint.flow_config.decoder.inference_cfg_rate
        self.plan = plan_solver("euler", solver_steps, rate)

    @torch.inference_mode()
    def vocode(self, mel: torch.Tensor) -> tuple[measure.Samples, measure.Samples]:
        """(frames, 80) to samples and the F0 used."""
        noise = torch.rand(1, 480 * len(mel), self.hift.config.nb_harmonics + 1)
        samples, f0 = self.hift(mel[None], noise)
        return samples[0].numpy(), f0[0].float().numpy()

    def speak(self, codes: np.ndarray, voice: AcousticPrompt) -> torch.Tensor:
        """Mel of true codes in a stored voice, (frames, 80)."""
        mel = self.flow.solve_whole(
            torch.from_numpy(codes)[None],
            torch.from_numpy(voice.tokens)[None],
            torch.from_numpy(voice.mel)[None],
            torch.from_numpy(voice.embedding)[None],
            self.plan,
        )
        return mel[0]


def teacher_speech(
    sentences: Sequence[str], voices: Mapping[str, Warp], seed: int = 10_000
) -> list[Utterance]:
    """Each sentence by the teacher, the voices taking turns; unspeakable ones are left out."""
    teacher, plan, names = Hibari(), CorpusPlan(max_tokens=400), list(voices)
    made = []
    for number, text in enumerate(sentences):
        words = Sentence(tuple(text.lower().split()))
        name = names[number % len(names)]
        item = utter(teacher, name, voices[name], words, plan, seed=seed + number)
        if item is not None:
            made.append(item)
    return made


def measure_links(parts: Parts, spoken: Sequence[Utterance]) -> list[Link]:
    """Teacher, copy synthesis, and true codes through flow and vocoder."""
    teacher, copy, tokens = Link("teacher"), Link("mel > vocoder"), Link("codes > flow > vocoder")
    stored = parts.checkpoint.voices
    names = list(stored)
    for number, item in enumerate(spoken):
        voice = item.speaker if item.speaker in stored else names[number % len(names)]
        teacher.hear(item.spoken, item.samples)
        mel = log_mel(item.samples, parts.checkpoint.mel_config)
        started = time.process_time()
        samples, f0 = parts.vocode(mel)
        copy.used_s += time.process_time() - started
        copy.hear(item.spoken, samples)
        _append(copy.pitch, measure.pitch_correlation(f0, item.f0))
        started = time.process_time()
        samples, f0 = parts.vocode(parts.speak(item.codes, stored[voice].acoustic))
        tokens.used_s += time.process_time() - started
        tokens.hear(item.spoken, samples)
        _append(tokens.pitch, measure.pitch_correlation(f0, item.f0))
    return [teacher, copy, tokens]


def _append(values: list[float], value: float | None) -> None:
    if value is not None:
        values.append(value)
