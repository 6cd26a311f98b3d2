"""What vLLM is started with, by hardware; no vLLM is needed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from antiphon.engine.speech_lm.vllm_backend import PROBE_TOLERANCE
from antiphon.engine.speech_lm.vllm_settings import (
    EXECUTOR,
    Device,
    VLLMSettings,
    engine_arguments,
)

CARD = Device(memory_bytes=24 << 30, bfloat16=True)
OLD_CARD = Device(memory_bytes=24 << 30)
CPU = Device()


def settings(**changes: object) -> VLLMSettings:
    return VLLMSettings(cache=Path("cache"), kv_gib=2.0, **changes)  # type: ignore[arg-type]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """An exported directory as far as its size counts."""
    (tmp_path / "model.safetensors").write_bytes(bytes(1 << 20))
    return tmp_path


@pytest.mark.parametrize(
    ("device", "dtype"), [(CARD, "bfloat16"), (OLD_CARD, "float16"), (CPU, "float32")]
)
def test_the_dtype_is_what_the_hardware_computes_in(
    device: Device, dtype: str, model: Path
) -> None:
    assert engine_arguments(model, settings(), device)["dtype"] == dtype
    assert device.dtype in PROBE_TOLERANCE, "the check at load has a tolerance for it"
    chosen = engine_arguments(model, settings(dtype=torch.float32), device)
    assert chosen["dtype"] == "float32", "the configuration's word"


def test_a_card_is_compiled_for_and_shared(model: Path) -> None:
    arguments = engine_arguments(model, settings(), CARD)
    assert not arguments["enforce_eager"]
    assert arguments["block_size"] == 16
    assert arguments["kv_cache_memory_bytes"] == 2 << 30
    assert arguments["gpu_memory_utilization"] * 24 == pytest.approx(3 + 1 / 1024)
    assert "distributed_executor_backend" not in arguments, "vLLM's own"


def test_on_a_cpu_the_worker_lives_in_the_engine_unless_cores_are_assigned(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VLLM_CPU_OMP_THREADS_BIND", raising=False)
    arguments = engine_arguments(model, settings(), CPU)
    assert arguments["distributed_executor_backend"] == EXECUTOR
    assert arguments["enforce_eager"]
    assert arguments["block_size"] == 32
    assert "gpu_memory_utilization" not in arguments
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0-1")
    assert "distributed_executor_backend" not in engine_arguments(model, settings(), CPU)


@pytest.mark.parametrize(
    ("available", "native", "expected"),
    [(False, False, CPU), (True, True, CARD), (True, False, OLD_CARD)],
)
def test_the_hardware_is_asked(
    available: bool, native: bool, expected: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = SimpleNamespace(total_memory=24 << 30)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: card)
    monkeypatch.setattr(
        torch.cuda,
        "is_bf16_supported",
        # Emulated bfloat16 is no reason to compute in it.
        lambda including_emulation: native or including_emulation,
    )
    assert Device.here() == expected
    assert settings().weights is expected.dtype
