"""What a listener gets where the first hop ends inside an attention chunk.

For several first hops: speech streamed with that hop (then hops up to chunk borders) against the
same codes spoken in one piece. Around the border, 100 ms to each side: log-spectral distance of the
samples, distance of the mel, and click energy (the largest sample-to-sample jump of the curvature
at the border against what speech has anyway). The same measures at a border on the grid, which is
exact, and away from any border, are the scale.

    python -m bench.hop_border --model DIR --json border.json --plot border.png
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from antiphon.engine.acoustic.interface import CHUNK_TOKENS, LOOK_AHEAD_TOKENS, AcousticSettings
from antiphon.engine.voice.voice import AcousticPrompt
from antiphon.engine.watermark.marked import FloatSamples
from bench.acoustic_lab import Lab, model_switch, open_model, speech_codes, voices
from bench.report import publish, switches

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FIRST_HOPS = (5, 6, 8, 12, 25)
LENGTH = 75
"""Tokens of each utterance."""
AROUND_S = 0.1
FRAME = 480


@dataclass(frozen=True)
class Border:
    """Distances at one border of one utterance."""

    log_spectral_db: float
    mel: float
    click: float
    """Jump at the border over the 99.9th percentile of the jumps within 0.5 s around it."""


def hops_after(first: int) -> list[int]:
    """Tokens given: the first hop with its look-ahead, then up to chunk borders."""
    hops = [first + LOOK_AHEAD_TOKENS]
    while sum(hops) < LENGTH:
        to_border = CHUNK_TOKENS - sum(hops) % CHUNK_TOKENS
        hops.append(min(to_border, LENGTH - sum(hops)))
    return hops


def spoken(
    lab: Lab, prompt: AcousticPrompt, tokens: list[int], hops: list[int]
) -> tuple[FloatSamples, list[int]]:
    """Samples of an utterance and the positions at which its hops were cut."""
    stream = lab.open(prompt, AcousticSettings())
    pieces, cuts, given = [], [], 0
    for number, hop in enumerate(hops):
        final = number == len(hops) - 1
        samples, _ = lab.speak(stream, tokens[given : given + hop], final=final)
        given += hop
        pieces.append(samples)
        cuts.append(sum(len(piece) for piece in pieces))
    return np.concatenate(pieces), cuts[:-1]


def log_spectral_distance(one: FloatSamples, other: FloatSamples) -> float:
    """Root mean square difference of the short-time log spectra in dB, -60 dB floor."""
    spectra = []
    for samples in (one, other):
        frames = torch.from_numpy(samples.copy()).unfold(0, 512, 128) * torch.hann_window(512)
        power = torch.fft.rfft(frames).abs().square()
        spectra.append(10 * torch.log10(power + 1e-6 * power.max() + 1e-10))
    return float((spectra[0] - spectra[1]).square().mean().sqrt())


def click(samples: FloatSamples, at: int) -> float:
    """Curvature at a position over the curvature that the speech around it has."""
    curvature: NDArray[np.float32] = np.abs(np.diff(samples, n=2))
    around = curvature[max(0, at - 6000) : at + 6000]
    here = curvature[max(0, at - 12) : at + 12]
    return float(here.max() / (np.quantile(around, 0.999) + 1e-9))


def border(
    samples: FloatSamples, whole: FloatSamples, mel: Tensor, whole_mel: Tensor, at: int, rate: int
) -> Border:
    """Compare two versions of an utterance around a sample position."""
    reach = int(AROUND_S * rate)
    near = slice(max(0, at - reach), at + reach)
    frames = slice(max(0, (at - reach) // FRAME), (at + reach) // FRAME)
    return Border(
        log_spectral_distance(samples[near], whole[near]),
        float((mel[frames] - whole_mel[frames]).abs().mean()),
        click(samples, at),
    )


def measure(lab: Lab, prompts: list[AcousticPrompt], codes: list[int], count: int) -> list[Border]:
    """The border after each first hop, then the scale; see `rows_of` for the order."""
    results: list[list[Border]] = [[] for _ in range(len(FIRST_HOPS) + 1)]
    rate = lab.vocoder.sample_rate
    for number in range(count):
        prompt = prompts[number % len(prompts)]
        tokens = codes[number * 31 : number * 31 + LENGTH]
        lab.warm(prompt, AcousticSettings())
        whole, _ = spoken(lab, prompt, tokens, [LENGTH])
        whole_mel = lab.mel(prompt, tokens, AcousticSettings())
        for index, first in enumerate(FIRST_HOPS):
            hops = hops_after(first)
            samples, cuts = spoken(lab, prompt, tokens, hops)
            mel = lab.mel(prompt, tokens, AcousticSettings(), hops)
            results[index].append(border(samples, whole, mel, whole_mel, cuts[0], rate))
        results[-1].append(border(whole, whole, whole_mel, whole_mel, len(whole) // 2, rate))
    return [
        Border(
            *(float(np.mean([getattr(b, name) for b in borders]))
              for name in ("log_spectral_db", "mel", "click"))
        )
        for borders in results
    ]  # fmt: skip


def rows_of(borders: list[Border]) -> list[dict[str, str | float]]:
    """One table row for each first hop, and speech without a border as the scale."""
    names = [*(f"first hop {first}" for first in FIRST_HOPS), "no border"]
    return [
        {
            "border": name,
            "log-spectral distance, dB": value.log_spectral_db,
            "mel distance": value.mel,
            "click (1: as speech)": value.click,
        }
        for name, value in zip(names, borders, strict=True)
    ]


def draw(axes: Axes, borders: list[Border]) -> None:
    """Distances against the first hop."""
    names = [*map(str, FIRST_HOPS), "none"]
    axes.bar(names, [value.log_spectral_db for value in borders], label="log-spectral, dB")
    axes.plot(names, [value.click for value in borders], "k.-", label="click (1: as speech)")
    axes.set_xlabel("first hop, tokens")
    axes.legend()


def main(argv: list[str] | None = None) -> None:
    parser = switches(__doc__ or "")
    model_switch(parser)
    parser.add_argument("--utterances", type=int, default=8)
    arguments: argparse.Namespace = parser.parse_args(argv)
    checkpoint = open_model(arguments)
    count = 1 if arguments.quick else arguments.utterances
    codes = speech_codes(checkpoint, 31 * count + LENGTH)
    borders = measure(Lab.of(checkpoint), voices(checkpoint), codes, count)
    publish(
        arguments,
        "Borders of a first hop against speech in one piece",
        rows_of(borders),
        draw=lambda axes: draw(axes, borders),
    )


if __name__ == "__main__":
    main()
