"""How long and how clean must a reference recording be? Likeness and word errors against both.

Speakers that no model was trained on are enrolled from 3, 5, 10 and 30 s of their speech: clean,
with noise at 10 dB, and with the same noise taken out again. Each voice then reads sentences.
Likeness is Resemblyzer's cosine to the speaker's own clean speech; that to another speaker is given
as the floor.

    python -m bench.reference --model runs/nano/nano --json reference.json --plot reference.png
    python -m bench.reference --model runs/nano/nano --quick
"""

from __future__ import annotations

import asyncio
import io
import statistics
import tempfile
import wave
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from antiphon.engine.checkpoint import open_checkpoint
from antiphon.engine.cosyvoice import CosyVoiceEngine
from antiphon.engine.interface import SpeechAudio, SpeechRequest
from antiphon.engine.voice.consent import Consent
from antiphon.engine.voice.enrol import MIN_REFERENCE_S, EnrolmentSettings, enrol
from antiphon.engine.voice.folder import VoiceFolder
from antiphon.engine.voice.quality import Bounds, QualityThresholds
from antiphon.engine.voice.quality_measures import analyse
from antiphon.engine.voice.reference import MAX_REFERENCE_S, ReferenceExtractor
from antiphon.engine.voice.resample import resample
from antiphon.engine.voice.store import VoiceStore
from antiphon.engine.watermark.none import NoWatermark
from bench import voice_measures as measure
from bench.asr import transcribe, word_errors
from bench.degrade import white_noise
from bench.report import Row, print_table, publish, switches
from bench.speech import RATE_HZ, Speaker, random_warp, sentences
from bench.voice_sentences import chosen

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SECONDS = (3, 5, 10, 30)
CONDITIONS = ("clean", "noisy", "cleaned")
NOISE_DB = 10.0
LIKENESS_BOUND = 0.03
"""Likeness that noise at 10 dB may still cost once it was taken out, …"""
NOISE_BOUND_DB = 1.5
"""… and by how much it may then raise the noise floor of what is spoken."""
FLOOR_DB = -60.0
"""Under the speech. What is quieter is not heard and counts as this."""
PAUSE_S = 0.3
ANYTHING = Bounds(warn=0.0, refuse=None, higher_is_better=True)
NO_GATE = QualityThresholds(
    **dict.fromkeys(
        ("speech_s", "snr_db", "decay_s", "bandwidth_hz", "speaker_similarity", "clipped_percent"),
        ANYTHING,
    )
)
"""Bad recordings are what is measured here: none is refused."""


@dataclass(frozen=True, slots=True)
class Recording:
    """A speaker's clean speech, clause by clause."""

    texts: list[str]
    pieces: list[measure.Samples]

    def first(self, seconds: float) -> tuple[str, measure.Samples]:
        """Return words and samples of the clauses that come nearest to a length, at least 3 s."""
        pause = np.zeros(int(PAUSE_S * RATE_HZ), np.float32)
        joined = pause
        said: list[str] = []
        shortest = MIN_REFERENCE_S * RATE_HZ
        order = list(range(len(self.pieces)))
        # The shortest reference is one clause of its length; longer ones go on from it.
        order.sort(key=lambda i: abs(len(self.pieces[i]) + 2 * len(pause) - 1.1 * shortest))
        for text, piece in ((self.texts[i], self.pieces[i]) for i in order):
            longer = np.concatenate([joined, piece, pause])
            nearer = abs(len(longer) - seconds * RATE_HZ) < abs(len(joined) - seconds * RATE_HZ)
            fits = len(longer) <= MAX_REFERENCE_S * RATE_HZ
            if fits and (nearer or len(joined) < shortest):
                joined, said = longer, [*said, text]
        return " ".join(said), joined


@dataclass(slots=True)
class Cell:
    """Figures of one length and condition."""

    seconds: float
    condition: str
    errors: int = 0
    words: int = 0
    lengths: list[float] = field(default_factory=list)
    """Seconds that the references really have."""
    own: list[float] = field(default_factory=list)
    other: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)
    """dB under the speech that was made."""

    def row(self) -> Row:
        """Return the figures as a table row."""
        return {
            "reference s": round(statistics.fmean(self.lengths), 1),
            "condition": self.condition,
            "likeness": statistics.fmean(self.own),
            "to another": statistics.fmean(self.other),
            "WER %": 100 * self.errors / max(1, self.words),
            "noise floor dB": statistics.fmean(self.floor),
        }


def record(count: int, seed: int = 77) -> list[Recording]:
    """Return speakers who were drawn for this benchmark alone, with 30 s or more of each."""
    speaker, random = Speaker(), np.random.default_rng(seed)
    made = []
    for number in range(count):
        warp = random_warp(random)
        # Clauses of 1 and of 3 to 4 s, which add up to any length.
        clauses = [text.split(", ") for text in sentences(12, seed=seed + number)]
        texts = [f"{clause.rstrip('.')}." for pair in clauses for clause in reversed(pair)]
        pieces = [speaker.speak(text, warp, seed=index) for index, text in enumerate(texts)]
        made.append(Recording(texts, pieces))
    return made


def enrol_all(
    model: Path, recordings: Sequence[Recording], lengths: Sequence[int], store: VoiceStore
) -> None:
    """Enrol every speaker at every length in every condition."""
    extractor = ReferenceExtractor.of(open_checkpoint(model))
    consent = Consent("a synthetic speaker", datetime(2026, 1, 1, tzinfo=UTC), ("any",))
    for number, recording in enumerate(recordings):
        for seconds in lengths:
            transcript, samples = recording.first(seconds)
            noisy = white_noise(NOISE_DB, seed=number)(samples, RATE_HZ)
            for condition in CONDITIONS:
                heard = samples if condition == "clean" else noisy
                made = enrol(
                    _wav(heard),
                    name=voice_name(number, seconds, condition),
                    model=model.name,
                    extractor=extractor,
                    consent=consent,
                    transcript=transcript,
                    language="en",
                    clean_up=condition == "cleaned",
                    settings=EnrolmentSettings(NO_GATE),
                )
                store.add(made.voice)


def voice_name(number: int, seconds: int, condition: str) -> str:
    """Return the name under which a voice is stored."""
    return f"speaker{number}-{seconds}s-{condition}"


def _wav(samples: measure.Samples) -> bytes:
    sink = io.BytesIO()
    with wave.open(sink, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())
    return sink.getvalue()


async def say(engine: CosyVoiceEngine, voice: str, text: str, seed: int) -> measure.Samples:
    """Return one sentence as the engine speaks it."""
    session = await engine.open_session(SpeechRequest(voice=voice, seed=seed))
    await session.push_text(text)
    await session.end_text()
    pieces = [e.audio.samples async for e in session.events() if isinstance(e, SpeechAudio)]
    return np.concatenate(pieces) if pieces else np.zeros(RATE_HZ // 5, np.float32)


async def measure_cells(
    model: Path, recordings: Sequence[Recording], lengths: Sequence[int], texts: Sequence[str]
) -> list[Cell]:
    """Enrol, speak and measure everything."""
    voices = [measure.voice_embedding(recording.pieces) for recording in recordings]
    with tempfile.TemporaryDirectory() as folder:
        store = VoiceStore(Path(folder))
        enrol_all(model, recordings, lengths, store)
        engine = CosyVoiceEngine.load(model, NoWatermark(), voices=VoiceFolder(store))
        try:
            cells = []
            for seconds in lengths:
                for condition in CONDITIONS:
                    cell = Cell(seconds, condition)
                    for number, recording in enumerate(recordings):
                        cell.lengths.append(len(recording.first(seconds)[1]) / RATE_HZ)
                        name = voice_name(number, seconds, condition)
                        spoken = [await say(engine, name, t, i) for i, t in enumerate(texts)]
                        _measure(cell, number, voices, texts, spoken)
                    cells.append(cell)
            return cells
        finally:
            await engine.close()


def _measure(
    cell: Cell,
    number: int,
    voices: Sequence[np.ndarray[tuple[int], np.dtype[np.float32]]],
    texts: Sequence[str],
    spoken: Sequence[measure.Samples],
) -> None:
    made = measure.voice_embedding(spoken)
    cell.own.append(float(made @ voices[number]))
    cell.other.append(float(made @ voices[(number + 1) % len(voices)]))
    for text, samples in zip(texts, spoken, strict=True):
        errors, words = word_errors(text, transcribe(samples, RATE_HZ))
        cell.errors += errors
        cell.words += words
        cell.floor.append(noise_floor_db(samples))


def noise_floor_db(samples: measure.Samples) -> float:
    """Level of the quietest tenth of 10 ms frames against the speech, not under `FLOOR_DB`."""
    heard = analyse(resample(samples, RATE_HZ, 16_000))
    speech = heard.bands[heard.active].sum(axis=1).mean() if heard.active.any() else 1.0
    quiet = float(np.percentile(heard.level_db, 10))
    return max(FLOOR_DB, quiet - 10 * float(np.log10(speech)))


def clean_up_rows(cells: Sequence[Cell]) -> list[Row]:
    """What noise costs a voice without and with clean-up, over all lengths of reference."""

    def mean(condition: str, values: Callable[[Cell], list[float]]) -> float:
        chosen = [values(cell) for cell in cells if cell.condition == condition]
        return statistics.fmean(value for row in chosen for value in row)

    rows: list[Row] = []
    for condition in CONDITIONS[1:]:
        likeness = mean("clean", lambda cell: cell.own) - mean(condition, lambda cell: cell.own)
        noise = mean(condition, lambda cell: cell.floor) - mean("clean", lambda cell: cell.floor)
        rows.append(
            {
                "reference": condition,
                "likeness lost": likeness,
                "noise added, dB": noise,
                "within the bounds": likeness <= LIKENESS_BOUND and noise <= NOISE_BOUND_DB,
            }
        )
    return rows


def drawing(cells: Sequence[Cell]) -> Callable[[Axes], None]:
    """Likeness over the length of the reference, word errors beside it."""

    def draw(axes: Axes) -> None:
        errors = axes.twinx()
        for condition in CONDITIONS:
            own = [cell for cell in cells if cell.condition == condition]
            x = [cell.seconds for cell in own]
            (line,) = axes.plot(x, [statistics.fmean(c.own) for c in own], "o-", label=condition)
            wer = [100 * c.errors / max(1, c.words) for c in own]
            errors.plot(x, wer, "x--", color=line.get_color(), alpha=0.6)
        axes.set_xscale("log")
        axes.set_xticks([cell.seconds for cell in cells], [f"{c.seconds:g}" for c in cells])
        axes.minorticks_off()
        axes.set_xlabel("reference, s")
        axes.set_ylabel("likeness (lines)")
        errors.set_ylabel("word error rate, % (dashed)")
        axes.legend(title="reference")

    return draw


def main() -> None:
    """Entry point."""
    parser = switches(__doc__ or "")
    parser.add_argument("--model", type=Path, required=True, help="checkpoint directory")
    parser.add_argument("--speakers", type=int, default=4)
    parser.add_argument("--sentences", type=int, default=6)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    speakers = 2 if arguments.quick else arguments.speakers
    count = 2 if arguments.quick else arguments.sentences
    lengths = SECONDS[::2] if arguments.quick else SECONDS
    cells = asyncio.run(measure_cells(arguments.model, record(speakers), lengths, chosen(count)))
    costs = clean_up_rows(cells)
    publish(
        arguments,
        f"Reference length and noise: {arguments.model.name}, {speakers} speakers",
        [cell.row() for cell in cells],
        details={"clean-up": costs},
        draw=drawing(cells),
    )
    print_table(f"Cost of noise at {NOISE_DB:g} dB, all lengths", costs)


if __name__ == "__main__":
    main()
