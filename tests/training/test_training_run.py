"""A whole run, from shards to a checkpoint, through the code behind the commands."""

from __future__ import annotations

import json
import shutil
import wave
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from antiphon.engine.checkpoint import open_checkpoint
from antiphon.training.cli import app, seconds
from antiphon.training.data.corpus import Corpus
from antiphon.training.loop import LoopPlan
from antiphon.training.recipe import PLANS, SHARES, Recipe, within
from antiphon.training.run import STAGES, Run


def test_a_budget_is_shared_out_whole() -> None:
    assert set(SHARES) == set(PLANS) == set(STAGES)
    assert 0.9 < sum(SHARES.values()) < 1.0
    recipe = within(Recipe(), 3600)
    assert recipe.stages["flow"].budget_s == pytest.approx(3600 * SHARES["flow"])
    assert (seconds("6h"), seconds("1.5m"), seconds("7s")) == (21600.0, 90.0, 7.0)


def test_unknown_stages_and_times_are_named() -> None:
    told = CliRunner().invoke(app, ["stage", "nope"])
    assert told.exit_code == 2
    assert "no stage" in told.output
    assert CliRunner().invoke(app, ["stage", "f0", "--budget", "6x"]).exit_code == 2


@pytest.mark.slow
def test_every_stage_in_order_makes_a_checkpoint(corpus_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(corpus_folder, tmp_path / "corpus")
    short = LoopPlan(steps=1, peak_lr=1e-4, warmup=1, eval_every=1, save_every=1)
    recipe = replace(Recipe(), stages=dict.fromkeys(PLANS, short))
    run = Run(tmp_path, recipe)
    for name in STAGES:
        assert np.isfinite(run.train(name)["score"])
    run.export(tmp_path / "nano")
    run.export(tmp_path / "fast", student=True)
    assert open_checkpoint(tmp_path / "nano").missing_files() == []
    assert open_checkpoint(tmp_path / "fast").flow_config.decoder.inference_cfg_rate == 0.0

    samples = (run.corpus.samples(1) * 32767).astype("<i2")
    with wave.open(str(tmp_path / "take.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(24000)
        file.writeframes(samples.tobytes())
    line = {"file": "take.wav", "text": run.corpus.rows[1]["spoken"], "speaker": "mine"}
    manifest = tmp_path / "mine.jsonl"
    manifest.write_text(json.dumps({**line, "consent": "The speaker is synthetic."}))
    assert run.recordings(manifest) == 1
    grown = Corpus((tmp_path / "corpus").glob("*.npz"))
    assert grown.rows[-1]["speaker"] == "mine"
    assert len(grown) == len(run.corpus) + 1
