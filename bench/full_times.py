"""What `full_size.py` measures, and its tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bench.simulate import StepTimes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Device:
    """What the device can do, measured."""

    name: str
    flops: float
    bytes_a_second: float


@dataclass(frozen=True)
class LMTimes:
    """The speech LM alone."""

    prefill_s: float
    step_s: dict[int, float]
    """By sequences that decode together."""
    weight_bytes: int


@dataclass(frozen=True)
class AcousticTimes:
    """Flow and vocoder."""

    prompt_s: float
    first_hop_s: dict[int, list[float]]
    """By sessions that ask at once: when each had its samples."""
    call_s: dict[int, float]
    vocoder_s: dict[int, float]
    """For the first hops of so many sessions, which end together."""
    estimator_flops: float
    """Of one call for one session's first hop."""

    def step_times(self) -> StepTimes:
        """Straight lines through the figures of one and of the most sessions."""
        few, many = min(self.call_s), max(self.call_s)
        return StepTimes(
            self.call_s[few],
            _slope(self.call_s, few, many) / 2,  # two rows a session
            self.vocoder_s[few],
            _slope(self.vocoder_s, few, many),
        )


def _slope(seconds: dict[int, float], few: int, many: int) -> float:
    """Seconds that each further session adds."""
    return max(0.0, (seconds[many] - seconds[few]) / (many - few)) if many > few else 0.0


def use_of(can: Device, lm: LMTimes, acoustic: AcousticTimes) -> dict[str, float]:
    """What is achieved of what the device can do, at one session and at the most.

    Multiplications by weights only, those of padding and attention left out: the shares are lower
    bounds.
    """
    use: dict[str, float] = {}
    for name, count in (("one", min(acoustic.call_s)), ("most", max(acoustic.call_s))):
        flops = acoustic.estimator_flops * count / acoustic.call_s[count]
        read = lm.weight_bytes / lm.step_s[count]
        use |= {
            f"{name}_sessions": count,
            f"{name}_flops": flops,
            f"{name}_flop_share": flops / can.flops,
            f"{name}_lm_bytes_a_second": read,
            f"{name}_lm_bandwidth_share": read / can.bytes_a_second,
        }
    return use


def use_rows(results: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Table rows of what is achieved."""
    rows = []
    for name, result in results.items():
        use, can = result["use"], result["device"]
        for which in ("one", "most"):
            rows.append(
                {
                    "model": name,
                    "sessions": use[f"{which}_sessions"],
                    "estimator, TFLOP/s": use[f"{which}_flops"] / 1e12,
                    "matrix rate, TFLOP/s": can["flops"] / 1e12,
                    "share": use[f"{which}_flop_share"],
                    "LM weights, GB/s": use[f"{which}_lm_bytes_a_second"] / 1e9,
                    "bandwidth, GB/s": can["bytes_a_second"] / 1e9,
                    "share of it": use[f"{which}_lm_bandwidth_share"],
                    "memory, MiB": result["memory_mib"],
                }
            )
    return rows


def rows_of(name: str, result: dict[str, Any]) -> list[dict[str, Any]]:
    """Table rows of one checkpoint."""
    first = result["acoustic"]["first_hop_s"]
    return [
        {
            "model": name,
            "sessions": load["sessions"],
            "hops at once, last ms": 1000 * max(first[load["sessions"]])
            if load["sessions"] in first
            else None,
            "first packet p50, ms": 1000 * load["p50_s"],
            "p95, ms": 1000 * load["p95_s"],
            "gaps": load["gaps"],
            "LM step, ms": 1000 * result["lm"]["step_s"].get(load["sessions"], float("nan")),
            "capacity": result["capacity"],
        }
        for load in result["load"]
    ]


def draw(axes: Axes, results: dict[str, dict[str, Any]]) -> None:
    """First packet against sessions."""
    for name, result in results.items():
        sessions = [load["sessions"] for load in result["load"]]
        for percentile in ("p50_s", "p95_s"):
            values = [1000 * load[percentile] for load in result["load"]]
            axes.plot(sessions, values, ".-", label=f"{name} {percentile[:3]}")
    axes.set_xscale("log", base=2)
    axes.set_xlabel("turns spoken at once")
    axes.set_ylabel("first packet, ms")
    axes.legend()
