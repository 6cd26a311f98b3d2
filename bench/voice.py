"""The voice gate: how well a nano checkpoint is understood and how much it sounds like its voices.

Link by link, each beside its ceiling: the teacher's own speech, its mel through the vocoder, its
tokens through flow and vocoder, and text through the whole engine at several first hops. Word error
rate by the bundled Whisper (base), DNSMOS, Resemblyzer likeness, F0 correlation, click energy at
hop borders, real-time factor and first-packet latency.

    python -m bench.voice --model runs/nano/nano --json voice.json --plot voice.png
    python -m bench.voice --model runs/nano/nano --quick
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from antiphon.engine.checkpoint import Checkpoint, open_checkpoint
from antiphon.engine.checkpoint.weights import load_module
from antiphon.engine.cosyvoice import CosyVoiceEngine
from antiphon.engine.flow.flow import Flow
from antiphon.engine.flow.flow_matching import plan_solver
from antiphon.engine.hops import LARGEST_HOP
from antiphon.engine.interface import SpeechAudio, SpeechRequest
from antiphon.engine.vocoder.hift import HiFT
from antiphon.engine.voice.features import log_mel
from antiphon.engine.voice.voice import AcousticPrompt
from antiphon.engine.watermark.none import NoWatermark
from antiphon.training.data.corpus import Utterance
from antiphon.training.data.hibari import Hibari
from antiphon.training.data.make import CorpusPlan, utter
from antiphon.training.data.sentences import Sentence
from antiphon.training.data.speakers import HOUSE
from bench import voice_measures as measure
from bench.asr import transcribe, word_errors
from bench.report import Row, publish, switches
from bench.voice_sentences import chosen

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HOPS = (5, 8, 12, 25, LARGEST_HOP)
"""First hops; with the largest, a sentence is spoken in one piece."""
QUICK_HOPS = (8, LARGEST_HOP)
SOLVER_STEPS = 10
PIECE_CHARACTERS = 7
"""Text is pushed in pieces of this many characters, as an LLM would."""


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
    wall_s: float = 0.0
    first_ms: list[float] = field(default_factory=list)
    last_words: int = 0
    sentences: int = 0
    spoken: dict[str, list[measure.Samples]] = field(default_factory=dict)

    def hear(self, voice: str, sentence: str, samples: measure.Samples) -> None:
        """Transcribe and score one sentence."""
        heard = transcribe(samples, measure.RATE_HZ)
        errors, words = word_errors(sentence, heard)
        self.errors += errors
        self.words += words
        self.sentences += 1
        last = sentence.lower().strip(" .!?").split()[-1]
        self.last_words += last in heard.lower()
        self.scores.append(measure.opinion_score(samples))
        self.speech_s += len(samples) / measure.RATE_HZ
        self.spoken.setdefault(voice, []).append(samples)

    def row(self) -> Row:
        """Return the figures as a table row."""
        return {
            "link": self.name,
            "WER %": 100 * self.errors / max(1, self.words),
            "last word %": 100 * self.last_words / max(1, self.sentences),
            "DNSMOS": _mean(self.scores),
            "F0 corr": _mean(self.pitch),
            "click dB": _mean(self.clicks),
            "RTF": self.wall_s / self.speech_s if self.wall_s else None,
            "first ms": _mean(self.first_ms),
        }


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


class Parts:
    """Flow and vocoder of a checkpoint, run whole."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.flow = Flow(checkpoint.flow_config).eval()
        load_module(self.flow, checkpoint.flow_state_dict(), "flow.pt")
        self.hift = HiFT(checkpoint.hift_config)
        load_module(self.hift, checkpoint.hift_state_dict(), "hift.pt")
        self.hift.prepare_for_serving()
        rate = checkpoint.flow_config.decoder.inference_cfg_rate
        self.plan = plan_solver("euler", SOLVER_STEPS, rate)

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


def teacher_speech(sentences: Sequence[str], voices: Sequence[str]) -> list[Utterance]:
    """Each sentence by the teacher, the voices taking turns; unspeakable ones are left out."""
    teacher, plan = Hibari(), CorpusPlan(max_tokens=400)
    made = []
    for number, text in enumerate(sentences):
        words = Sentence(tuple(text.lower().split()))
        name = voices[number % len(voices)]
        item = utter(teacher, name, HOUSE[name], words, plan, seed=10_000 + number)
        if item is not None:
            made.append(item)
    return made


def measure_links(parts: Parts, spoken: Sequence[Utterance], voices: Sequence[str]) -> list[Link]:
    """Teacher, copy synthesis, and true codes through flow and vocoder."""
    teacher, copy, tokens = Link("teacher"), Link("mel > vocoder"), Link("codes > flow > vocoder")
    for number, item in enumerate(spoken):
        stored = voices[number % len(voices)]
        teacher.hear(item.speaker, item.spoken, item.samples)
        mel = log_mel(item.samples, parts.checkpoint.mel_config)
        started = time.perf_counter()
        samples, f0 = parts.vocode(mel)
        copy.wall_s += time.perf_counter() - started
        copy.hear(item.speaker, item.spoken, samples)
        _append(copy.pitch, measure.pitch_correlation(f0, item.f0))
        started = time.perf_counter()
        samples, f0 = parts.vocode(
            parts.speak(item.codes, parts.checkpoint.voices[stored].acoustic)
        )
        tokens.wall_s += time.perf_counter() - started
        tokens.hear(stored, item.spoken, samples)
        _append(tokens.pitch, measure.pitch_correlation(f0, item.f0))
    return [teacher, copy, tokens]


def _append(values: list[float], value: float | None) -> None:
    if value is not None:
        values.append(value)


async def measure_text(
    engine: CosyVoiceEngine, hop: int, sentences: Sequence[str], voices: Sequence[str]
) -> Link:
    """Text through the whole engine, pushed in pieces, at one first hop."""
    name = "whole" if hop == LARGEST_HOP else f"first hop {hop}"
    link = Link(f"text, {name}")
    for number, sentence in enumerate(sentences):
        voice = voices[number % len(voices)]
        request = SpeechRequest(
            voice=voice, seed=number, first_hop=hop, max_hop=LARGEST_HOP if hop > 25 else 25
        )
        started = time.perf_counter()
        session = await engine.open_session(request)
        for at in range(0, len(sentence), PIECE_CHARACTERS):
            await session.push_text(sentence[at : at + PIECE_CHARACTERS])
        await session.end_text()
        pieces: list[measure.Samples] = []
        async for event in session.events():
            if isinstance(event, SpeechAudio) and len(event.audio):
                if not pieces:
                    link.first_ms.append(1000 * (time.perf_counter() - started))
                pieces.append(event.audio.samples)
        link.wall_s += time.perf_counter() - started
        samples = np.concatenate(pieces) if pieces else np.zeros(4800, np.float32)
        borders = np.cumsum([len(piece) for piece in pieces[:-1]]).tolist()
        link.clicks += measure.click_decibels(samples, borders)
        link.hear(voice, sentence, samples)
    return link


def likeness(parts: Parts, made: Link) -> Row:
    """How often speech is nearest to the prompt of its own voice."""
    prompts = {}
    for name in made.spoken:
        mel = torch.from_numpy(parts.checkpoint.voices[name].acoustic.mel)
        prompts[name] = measure.voice_embedding([parts.vocode(mel)[0]])
    voices = {name: measure.voice_embedding(pieces) for name, pieces in made.spoken.items()}
    first, own, others = measure.right_voice_ranks(voices, prompts)
    return {
        "voices": len(voices),
        "right voice first": first,
        "own prompt": own,
        "other prompts": others,
    }


def drawing(links: Sequence[Link]) -> Callable[[Axes], None]:
    """Word error rates as bars."""

    def draw(axes: Axes) -> None:
        names = [link.name for link in links]
        axes.barh(names, [100 * link.errors / max(1, link.words) for link in links])
        axes.invert_yaxis()
        axes.set_xlabel("word error rate, %")

    return draw


async def run(model: Path, sentences: Sequence[str], hops: Sequence[int]) -> tuple[list[Link], Row]:
    """All links of a checkpoint, and the likeness of its voices."""
    parts = Parts(open_checkpoint(model))
    voices = list(parts.checkpoint.voices)
    shared = [name for name in voices if name in HOUSE]
    links = measure_links(parts, teacher_speech(sentences, shared or list(HOUSE)), voices)
    engine = CosyVoiceEngine.load(model, NoWatermark())
    try:
        await engine.warm_up()
        for hop in hops:
            links.append(await measure_text(engine, hop, sentences, voices))
    finally:
        await engine.close()
    return links, likeness(parts, links[-1])


def main() -> None:
    """Entry point."""
    parser = switches(__doc__ or "")
    parser.add_argument("--model", type=Path, required=True, help="checkpoint directory")
    parser.add_argument("--sentences", type=int, default=100)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    count = min(arguments.sentences, 12) if arguments.quick else arguments.sentences
    hops = QUICK_HOPS if arguments.quick else HOPS
    links, voices = asyncio.run(run(arguments.model, chosen(count), hops))
    publish(
        arguments,
        f"Voice gate: {arguments.model.name}, {count} sentences",
        [link.row() for link in links],
        details={"likeness": voices},
        draw=drawing(links),
    )
    print("  ".join(f"{key}: {value}" for key, value in voices.items()))


if __name__ == "__main__":
    main()
