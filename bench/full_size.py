"""Published size on whatever device is there: first packet, capacity, and how well it is used.

CosyVoice 3 and 2 are built at full size with random weights (values do not change the time, and the
number of tokens is fixed). Measured: the speech LM's prefill and step, an estimator call for more
and more sessions, the vocoder, and first hops of many sessions asked for at once. Step times go
through the engine's own policy (simulate.py) for first-packet percentiles and capacity. With CUDA:
half precision, captured calls, memory, and the achieved share of what the device can do.

It runs to its end unattended, on a GPU inside eight minutes: nothing is downloaded, and no model is
begun when seven are over. How long it took stands below the tables.

    python -m bench.full_size --json full.json --plot full.png
    python -m bench.full_size --model DIR --quick          # any smaller checkpoint
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from antiphon.engine.acoustic.core import AcousticCore, Hop
from antiphon.engine.acoustic.decoder import Decoder
from antiphon.engine.acoustic.interface import LOOK_AHEAD_TOKENS, AcousticSettings
from antiphon.engine.acoustic.loader import load_decoder
from antiphon.engine.acoustic.policy import BatchLimits
from antiphon.engine.acoustic.settings import EngineSettings
from antiphon.engine.checkpoint import Checkpoint, open_checkpoint
from antiphon.engine.checkpoint.config import ModelGeneration
from antiphon.engine.hops import HopSettings
from antiphon.engine.speech_lm.batch_plan import Row as LMRow
from antiphon.engine.speech_lm.qwen2 import KVCache, Qwen2SpeechLM
from bench.full_models import RandomCheckpoint
from bench.full_times import (
    AcousticTimes,
    Device,
    LMTimes,
    draw,
    rows_of,
    use_of,
    use_rows,
)
from bench.lm_bound import bandwidth
from bench.report import print_table, publish, switches
from bench.simulate import Load, StepTimes, simulate

PROMPT_TOKENS = 78
FIRST_HOP = 8
LM_PROMPT = 82
BUDGET_S = 420.0
"""No new measurement starts after this: the whole stays under eight minutes."""


def _seconds(work: Callable[[], object], repetitions: int) -> float:
    """Median time of a call, the device's queue drained before and after."""
    times = []
    for _ in range(repetitions + 1):
        _drain()
        started = time.perf_counter()
        work()
        _drain()
        times.append(time.perf_counter() - started)
    return float(np.median(times[1:]))


def _drain() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def measure_device(device: str, dtype: torch.dtype) -> Device:
    """Matrix rate and copy bandwidth."""
    size = 8192 if device == "cuda" else 768
    left = torch.randn(size, size, device=device, dtype=dtype)
    product = _seconds(lambda: left @ left, 3)
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    return Device(name, 2 * size**3 / product, bandwidth(device))


def measure_lm(
    checkpoint: Checkpoint, device: str, dtype: torch.dtype, counts: list[int], repetitions: int
) -> LMTimes:
    """Prefill of one sequence, and steps of several together."""
    positions = LM_PROMPT + 40 + repetitions
    model = Qwen2SpeechLM(
        checkpoint.lm_config,
        checkpoint.lm_state_dict(),
        positions=positions,
        dtype=dtype,
        device=device,
    )
    cache = KVCache.allocate(checkpoint.backbone_config, max(counts), positions, dtype, device)
    ids = list(range(LM_PROMPT))
    prefill = _seconds(lambda: model.step(cache, [LMRow(0, 0, ids)]), repetitions)

    def step_of(count: int) -> float:
        rows = [LMRow(slot, LM_PROMPT, [1]) for slot in range(count)]
        return _seconds(lambda: model.step(cache, rows), repetitions)

    steps = {count: step_of(count) for count in counts}
    config = checkpoint.backbone_config
    width, kv = config.hidden_size, config.num_key_value_heads * config.head_dim
    layer = 2 * width * width + 2 * width * kv + 3 * width * config.intermediate_size
    weights = config.num_hidden_layers * layer + width * checkpoint.lm_config.ids.rows
    return LMTimes(prefill, steps, weights * dtype.itemsize)


def build_decoder(checkpoint: Checkpoint, device: str, settings: EngineSettings) -> Decoder:
    """Flow and vocoder as the engine serves them."""
    return load_decoder(checkpoint, settings, device)


def _flops(decoder: Decoder) -> float:
    """Multiplications and additions of one estimator call for one session's first hop."""
    estimator = decoder.streamer.flow.decoder.estimator  # type: ignore[attr-defined]
    weights = sum(p.numel() for p in estimator.parameters() if p.dim() > 1)
    window = PROMPT_TOKENS % 25 + FIRST_HOP
    return float(2.0 * weights * 2 * 2 * window)


def measure_acoustic(
    checkpoint: Checkpoint, device: str, settings: EngineSettings, counts: list[int], steps: int
) -> AcousticTimes:
    """First hops of several sessions asked for at once, voice warm."""
    decoder = build_decoder(checkpoint, device, settings)
    core = AcousticCore(decoder.streamer, decoder.vocoder, settings)
    codes = decoder.codes
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, codes, (PROMPT_TOKENS,), generator=generator)
    voice = decoder.streamer.voice(
        tokens, torch.randn(2 * PROMPT_TOKENS, 80, generator=generator), torch.ones(192)
    )
    asked = AcousticSettings(steps=steps)

    def run(sessions: int, given: int) -> tuple[list[float], int, list[Hop]]:
        hops = [
            core.submit(
                core.open("bench", voice, asked, 0.0),
                torch.randint(0, codes, (given,), generator=generator).tolist(),
                final=False,
                deadline=None,
                now=0.0,
            )
            for _ in range(sessions)
        ]
        _drain()
        started, calls = time.perf_counter(), 0
        done: list[float] = []
        while len(done) < sessions:
            finished, _, _ = core.step(0.0)
            calls += 1
            done += [time.perf_counter() - started] * len(finished)
        return done, calls, hops

    prompt = run(1, 0)[0][-1]
    first, calls_s, vocoder = {}, {}, {}
    for count in counts:
        run(count, FIRST_HOP + LOOK_AHEAD_TOKENS)
        done, _, hops = run(count, FIRST_HOP + LOOK_AHEAD_TOKENS)
        first[count] = done
        vocoder[count] = max(hop.timings["vocoder"] for hop in hops)
        calls_s[count] = max(1e-9, (done[-1] - vocoder[count]) / steps)
    return AcousticTimes(prompt, first, calls_s, vocoder, _flops(decoder))


def evaluate(
    lm: LMTimes, acoustic: AcousticTimes, counts: list[int], bound_s: float, rows: int, steps: int
) -> tuple[list[dict[str, float]], int]:
    """First packet against sessions through the policy, and the capacity."""
    times = acoustic.step_times()
    table, capacity, served = [], 0, True
    for sessions in counts:
        at_once = min(lm.step_s, key=lambda count: abs(count - sessions))
        load = Load(
            sessions,
            turns=max(100, 6 * sessions),
            lm_first_s=lm.prefill_s,
            lm_tokens_a_second=1 / lm.step_s[at_once],
            steps=steps,
        )
        hops = HopSettings(first_hop=FIRST_HOP)
        outcome = simulate(load, times, BatchLimits(rows, free_rows=max(2, rows // 2)), hops)
        p50, p95 = (float(v) for v in np.percentile(outcome.first_packet_s, [50, 95]))
        table.append({"sessions": sessions, "p50_s": p50, "p95_s": p95, "gaps": outcome.gaps})
        served = served and outcome.gaps == 0 and p95 <= bound_s
        capacity = sessions if served else capacity
    return table, capacity


def measure(checkpoint: Checkpoint, arguments: argparse.Namespace, device: str) -> dict[str, Any]:
    """Everything for one checkpoint."""
    half = device == "cuda" and checkpoint.generation is ModelGeneration.V3
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    counts = arguments.sessions or ([1, 4, 16, 64] if device == "cuda" else [1, 2])
    steps = 2 if arguments.quick else 10
    settings = EngineSettings(
        # A prompt and a chunk of each of 64 sessions take 6 GiB.
        cache_mib=16384 if device == "cuda" else 4096,
        voices_mib=2048,
        batch_rows=2 * max(counts),
        free_rows=2 * max(counts),
        urgent_s=10.0,
        precision="bfloat16" if half else "float32",
        cuda_graphs=half,
    )
    can = measure_device(device, dtype)
    lm = measure_lm(checkpoint, device, dtype, counts, 2 if arguments.quick else 5)
    acoustic = measure_acoustic(checkpoint, device, settings, counts, steps)
    loads = sorted({1, 4, 16, 64, *counts}) if device == "cuda" else counts
    table, capacity = evaluate(
        lm, acoustic, loads, arguments.bound_ms / 1000, 2 * max(counts), steps
    )
    return {
        "device": asdict(can),
        "lm": asdict(lm),
        "acoustic": asdict(acoustic),
        "step_times": {n: getattr(acoustic.step_times(), n) for n in StepTimes.__slots__},
        "load": table,
        "capacity": capacity,
        "use": use_of(can, lm, acoustic),
        "memory_mib": torch.cuda.max_memory_allocated() / 2**20 if device == "cuda" else None,
    }


def main(argv: list[str] | None = None) -> None:
    parser = switches(__doc__ or "")
    parser.add_argument("--model", type=Path, help="a checkpoint of versions 2 or 3 instead")
    parser.add_argument("--version", type=int, nargs="*", default=[3, 2], choices=[2, 3])
    parser.add_argument("--sessions", type=int, nargs="*", help="sessions at once")
    parser.add_argument("--bound-ms", type=float, default=300.0, help="p95 that counts as served")
    arguments = parser.parse_args(argv)
    started = time.monotonic()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if arguments.model:
        chosen: list[tuple[str, Callable[[], Checkpoint]]] = [
            (arguments.model.name, lambda: open_checkpoint(arguments.model))
        ]
    else:
        chosen = [
            (f"CosyVoice {v}", lambda v=v: RandomCheckpoint(v))  # type: ignore[misc]
            for v in arguments.version
        ]
    results: dict[str, dict[str, Any]] = {}
    for name, build in chosen:
        if time.monotonic() - started < BUDGET_S:
            if device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            results[name] = measure(build(), arguments, device)
    print_table("What is achieved of what the device can do", use_rows(results))
    publish(
        arguments,
        "Published size" if not arguments.model else f"Size of {arguments.model.name}",
        [row for name, result in results.items() for row in rows_of(name, result)],
        details={
            "results": results,
            "step_times": next(iter(results.values()))["step_times"],
            "elapsed_s": time.monotonic() - started,
        },
        draw=lambda axes: draw(axes, results),
    )
    left_out = [name for name, _ in chosen if name not in results]
    print(
        f"Took {time.monotonic() - started:.0f} s"
        + (f"; left out for want of time: {', '.join(left_out)}." if left_out else ".")
    )


if __name__ == "__main__":
    main()
