"""Does the quality report find what is wrong with a recording, and leave clean ones alone?

Speakers drawn for this benchmark read two sentences each. Every defect is put into every recording
at its stated level; the share in which the report warns (or refuses) is printed beside the share
of clean recordings that the same measure blames. Thresholds were chosen on seed 101 and the tests'
own speakers (seed 11); the figures to be believed are those of other seeds.

    python -m bench.report_quality --model MODEL --seed 202 --json report.json
    python -m bench.report_quality --model MODEL --quick
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from antiphon.engine.audio_file import DecodedAudio
from antiphon.engine.checkpoint import open_checkpoint
from antiphon.engine.voice.prepare import Heard, speech_samples
from antiphon.engine.voice.quality import (
    OpinionScore,
    QualityThresholds,
    Verdict,
    dnsmos,
    speaker_similarity,
)
from antiphon.engine.voice.quality_measures import bandwidth_hz, clipped_share, decay_s, snr_db
from antiphon.engine.voice.reference import ReferenceExtractor, SpeakerEncoder
from antiphon.engine.voice.resample import resample
from bench import defects
from bench.defects import RATE, Samples
from bench.report import Row, publish, switches
from bench.speech import Speaker, random_warp, sentences

LONGEST_S = 8.0
ALIKE = 0.3
"""Speakers of a pair are less alike: two warps of one throat may come out as one voice."""
FOUND, BLAMED = 0.9, 0.05
"""What is asked of each measure."""


@dataclass(frozen=True, slots=True)
class Case:
    """A defect at a level, and the measure that must notice it."""

    measure: str
    name: str
    spoil: Callable[[Samples, int], Samples]
    verdict: Verdict = Verdict.WARN


CASES = (
    Case("speech_s", "1 s of speech in 4 s", lambda x, _: defects.mostly_silent(x), Verdict.REFUSE),
    Case("snr_db", "white noise, 15 dB", lambda x, i: defects.with_noise(x, 15, i)),
    Case("snr_db", "pink noise, 15 dB", lambda x, i: defects.with_noise(x, 15, i, pink=True)),
    Case("clipped_percent", "0.2 % clipped", lambda x, _: defects.clipped(x, 0.002)),
    Case("clipped_percent", "1 % clipped", lambda x, _: defects.clipped(x, 0.01)),
    Case("decay_s", "room of 0.5 s, 0 dB", lambda x, i: defects.in_a_room(x, 0.5, 0, i)),
    Case("decay_s", "room of 1 s, 0 dB", lambda x, i: defects.in_a_room(x, 1.0, 0, i)),
    Case("bandwidth_hz", "nothing above 5.5 kHz", lambda x, _: defects.lowpassed(x, 5500)),
    Case("bandwidth_hz", "nothing above 3.4 kHz", lambda x, _: defects.lowpassed(x, 3400)),
    Case("opinion_score", "phases lost (robotic)", defects.robotic),
    Case("opinion_score", "pink noise, 5 dB", lambda x, i: defects.with_noise(x, 5, i, pink=True)),
)


class Measures:
    """The report's own measures, each on a whole recording."""

    def __init__(self, speakers: SpeakerEncoder, opinion: OpinionScore | None) -> None:
        self._speakers = speakers
        self._opinion = opinion

    def value(self, measure: str, samples: Samples) -> float:
        """Return what the report would show."""
        heard = Heard.of(DecodedAudio(samples, RATE))
        match measure:
            case "speech_s":
                return heard.analysis.speech_s
            case "snr_db":
                return snr_db(heard.analysis)
            case "clipped_percent":
                return 100 * clipped_share(samples)
            case "decay_s":
                return decay_s(heard.analysis)
            case "bandwidth_hz":
                return bandwidth_hz(samples, RATE)
            case "speaker_similarity":
                return speaker_similarity(speech_samples(heard), self._speakers)
            case _:
                assert self._opinion is not None
                return self._opinion(heard.at_16k)

    def embedding(self, samples: Samples) -> Samples:
        """Return a unit vector of a recording's voice."""
        vector = self._speakers.embedding(resample(samples, RATE, 16_000))
        unit: Samples = vector / np.linalg.norm(vector)
        return unit


def record(count: int, seed: int) -> list[Samples]:
    """Return clean recordings of as many speakers."""
    speaker, random = Speaker(), np.random.default_rng(seed)
    texts = sentences(2 * count, seed=seed)
    longest = round(LONGEST_S * RATE)
    return [
        speaker.speak(f"{texts[2 * i]} {texts[2 * i + 1]}", random_warp(random), seed=i)[:longest]
        for i in range(count)
    ]


def pairs(recordings: Sequence[Samples], measures: Measures, seed: int) -> list[Samples]:
    """Return recordings in which a second voice takes over halfway."""
    voices = np.stack([measures.embedding(samples) for samples in recordings])
    alike = voices @ voices.T
    order = np.random.default_rng(seed).permutation(len(recordings))
    made = []
    for first in order:
        others = [second for second in order if alike[first, second] < ALIKE]
        if others:
            halves = (recordings[first][: 4 * RATE], recordings[others[0]][: 4 * RATE])
            made.append(np.concatenate(halves))
    return made


def rows(recordings: Sequence[Samples], measures: Measures, seed: int) -> list[Row]:
    """Measure every case."""
    bounds = QualityThresholds()
    order = list(Verdict)

    def share(measure: str, spoiled: Sequence[Samples], at_least: Verdict) -> float:
        limit = getattr(bounds, measure)
        verdicts = [limit.verdict(measures.value(measure, samples)) for samples in spoiled]
        worse = [order.index(verdict) >= order.index(at_least) for verdict in verdicts]
        return sum(worse) / len(worse)

    blamed: dict[str, float] = {}
    found: list[Row] = []
    two = Case("speaker_similarity", "a second voice after 4 s", lambda x, _: x)
    for case in (*CASES, two):
        if case.measure not in blamed:
            blamed[case.measure] = share(case.measure, recordings, Verdict.WARN)
        spoiled = (
            pairs(recordings, measures, seed)
            if case is two
            else [case.spoil(samples, index) for index, samples in enumerate(recordings)]
        )
        hit = share(case.measure, spoiled, case.verdict)
        found.append(
            {
                "measure": case.measure,
                "defect": case.name,
                "verdict": case.verdict.value,
                "recordings": len(spoiled),
                "found %": 100 * hit,
                "clean blamed %": 100 * blamed[case.measure],
                "as asked": hit >= FOUND and blamed[case.measure] <= BLAMED,
            }
        )
    return found


def main() -> None:
    """Entry point."""
    parser = switches(__doc__ or "")
    parser.add_argument("--model", type=Path, required=True, help="for its speaker encoder")
    parser.add_argument("--seed", type=int, default=202)
    parser.add_argument("--recordings", type=int, default=40)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    count = 6 if arguments.quick else arguments.recordings
    opinion = dnsmos()
    if opinion is None:
        raise SystemExit("speechmos is not installed; the report has no opinion score without it.")
    speakers = ReferenceExtractor.of(open_checkpoint(arguments.model)).speakers
    found = rows(record(count, arguments.seed), Measures(speakers, opinion), arguments.seed)
    title = f"Quality report, {count} speakers of seed {arguments.seed}"
    publish(arguments, title, found)


if __name__ == "__main__":
    main()
