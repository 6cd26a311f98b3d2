"""The speech LM's benchmark compares with what was really cold, and with a real bound."""

from __future__ import annotations

import os
import time
from itertools import combinations
from pathlib import Path

import pytest

from antiphon.engine.speech_lm.memory import kv_bytes_per_id, step_bytes
from antiphon.engine.speech_lm.vllm_backend import shareable_prefix
from bench.lm_bound import LENGTH, bandwidth, bound_rows
from bench.lm_prefix import voice_seed
from bench.lm_subject import Subject
from bench.processes import cpu_ms
from bench.speech_lm import PROMPTS
from tests import golden

BLOCK = 32


@pytest.fixture(scope="module")
def subject() -> Subject:
    return Subject.of(golden.model_dir(3))


def test_no_cold_voice_begins_as_another_did(subject: Subject) -> None:
    """One that did would find that one's blocks in the cache."""
    lengths = PROMPTS["nano"]
    prompts = [
        shareable_prefix(subject.builder, subject.voice(voice_seed(blocks, number), blocks))
        for blocks in lengths
        for number in range(3)
    ]
    for one, other in combinations(prompts, 2):
        assert one[:BLOCK] != other[:BLOCK]


def test_every_prompt_of_the_cache_measurement_spans_four_blocks(subject: Subject) -> None:
    for blocks in {*PROMPTS["nano"], *PROMPTS["full"]}:
        assert len(shareable_prefix(subject.builder, subject.voice(1, blocks))) >= 4 * BLOCK


def test_the_bound_is_bytes_over_bandwidth(subject: Subject) -> None:
    config = subject.checkpoint.lm_config
    one, eight = bound_rows(config, 4, 10e9, {1: 5.0, 8: 10.0})
    assert one["bound ms"] == pytest.approx(step_bytes(config, 4, 1, LENGTH) / 1e7)
    more = (8 - 1) * LENGTH * kv_bytes_per_id(config, 4)
    assert float(eight["MB a step"] or 0) - float(one["MB a step"] or 0) == pytest.approx(
        more / 1e6
    )
    assert one["share of bandwidth"] == pytest.approx(float(one["bound ms"] or 0) / 5.0)


def test_the_bandwidth_of_this_machine_is_measured() -> None:
    assert 1e8 < bandwidth("cpu") < 1e13


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="Linux counts threads there")
def test_used_time_counts_work_and_not_waiting() -> None:
    start = cpu_ms([os.getpid()])
    time.sleep(0.2)
    waited = cpu_ms([os.getpid()]) - start
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
    assert cpu_ms([os.getpid()]) - start - waited > 150
    assert waited < 150
