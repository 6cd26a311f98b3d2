"""Clean-up by Demucs: a small network of the package's own class, with random weights."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from antiphon.engine.audio_file import DecodedAudio
from antiphon.engine.errors import CheckpointError, UnsupportedFeature
from antiphon.engine.voice.demucs import Demucs

pytest.importorskip("demucs", reason="the optional package demucs is not installed")

SMALL: dict[str, Any] = {
    "sources": ["drums", "bass", "other", "vocals"],
    "channels": 16,
    "dconv_comp": 2,
    "depth": 4,
    "t_layers": 0,
    "bottom_channels": 0,
    "dconv_depth": 1,
    "segment": 1,
}


def write(path: Path, klass: str = "demucs.htdemucs.HTDemucs", **changes: Any) -> Path:
    from demucs.htdemucs import HTDemucs

    torch.manual_seed(0)
    arguments = {**SMALL, **changes}
    network = HTDemucs(**{**arguments, "segment": Fraction(arguments["segment"])})
    state = {key: value.contiguous() for key, value in network.state_dict().items()}
    said = {"klass": klass, "args": "[]", "kwargs": json.dumps(arguments)}
    save_file(state, path, metadata=said)
    return path


@pytest.mark.parametrize(("rate", "seconds"), [(24_000, 3.1), (44_100, 1.0), (16_000, 0.4)])
def test_length_and_rate_stay(tmp_path: Path, rate: int, seconds: float) -> None:
    cleaner = Demucs(write(tmp_path / "small.safetensors"))
    samples = np.random.default_rng(0).normal(0, 0.1, round(seconds * rate)).astype(np.float32)
    cleaned = cleaner(DecodedAudio(samples, rate))
    assert (cleaned.rate, len(cleaned.samples)) == (rate, len(samples))
    assert cleaned.samples.dtype == np.float32
    assert np.isfinite(cleaned.samples).all()
    assert not np.allclose(cleaned.samples, samples)
    assert np.array_equal(cleaned.samples, cleaner(DecodedAudio(samples, rate)).samples)


def test_the_source_vocals_is_what_is_kept(tmp_path: Path) -> None:
    cleaner = Demucs(write(tmp_path / "small.safetensors"))
    chosen = []

    def apply(network: Any, mix: torch.Tensor, **options: Any) -> torch.Tensor:
        chosen.append(mix.shape)
        parts = torch.zeros(1, 4, 2, mix.shape[-1])
        parts[:, 3] = mix
        return parts

    cleaner._apply = apply
    samples = np.sin(np.arange(44_100) / 20).astype(np.float32)
    cleaned = cleaner(DecodedAudio(samples, 44_100))
    assert chosen == [(1, 2, 44_100)]
    assert np.abs(cleaned.samples - samples).max() < 1e-5


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "pickle.th").write_bytes(b"\x80\x02.")
    wrong = [
        tmp_path / "absent.safetensors",
        tmp_path / "pickle.th",
        write(tmp_path / "class.safetensors", klass="os.system"),
        write(tmp_path / "sources.safetensors", sources=["drums", "bass"]),
    ]
    torch_state = {"weight": torch.zeros(2)}
    save_file(torch_state, tmp_path / "bare.safetensors")
    said = {"klass": "demucs.htdemucs.HTDemucs", "args": "[]", "kwargs": json.dumps(SMALL)}
    save_file(torch_state, tmp_path / "other.safetensors", metadata=said)
    for path in [*wrong, tmp_path / "bare.safetensors", tmp_path / "other.safetensors"]:
        with pytest.raises(CheckpointError) as refused:
            Demucs(path)
        assert refused.value.field == path.name


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "small.safetensors")
    monkeypatch.setitem(__import__("sys").modules, "demucs.apply", None)
    with pytest.raises(UnsupportedFeature) as refused:
        Demucs(path)
    assert refused.value.field == "clean_up"
