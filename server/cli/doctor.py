"""`antiphon doctor`: what this machine can run, and what is missing."""

from __future__ import annotations

import contextlib
import ctypes.util
import dataclasses
import importlib.metadata
import importlib.util
import os
import platform
from pathlib import Path
from typing import Any

import typer

from antiphon.engine.errors import AntiphonError
from antiphon.server.cli.console import EXIT_PROBLEMS, out, print_json, progress
from antiphon.server.cli.memory_table import examine_memory, print_memory
from antiphon.server.config import (
    Config,
    CosyVoiceEngineSection,
    EngineSection,
    load_config,
)

CHECKPOINT_PARTS = {
    "description": ("cosyvoice3.yaml", "cosyvoice2.yaml", "cosyvoice.yaml"),
    "speech LM": ("llm.pt",),
    "flow": ("flow.pt",),
    "vocoder": ("hift.pt",),
    "speech tokenizer": (
        "speech_tokenizer_v3.onnx",
        "speech_tokenizer_v2.onnx",
        "speech_tokenizer_v1.onnx",
    ),
    "speaker encoder": ("campplus.onnx",),
    "stored voices": ("spk2info.pt",),
}
"""Each part of a checkpoint directory with the file names it goes by, newest first."""
_KEYS_SHOWN = 20
OPTIONAL_PARTS = {"stored voices", "speech tokenizer", "speaker encoder"}
"""Without these the checkpoint still speaks, with fewer voices or without new ones."""


def run_doctor(model: Path | None, config_path: Path | None, *, as_json: bool) -> None:
    """Print the report; exit code 1 where it has problems.

    Raises:
        Exit: 1, after the report. Optional parts that are not installed are no problems.
        InvalidConfiguration: the configuration file itself cannot work.
    """
    config = load_config(config_path)
    with progress("Looking around", quiet=as_json):
        report = examine(config, model)
    if as_json:
        print_json(report)
    else:
        _print(report)
    if report["problems"]:
        raise typer.Exit(EXIT_PROBLEMS)


def examine(config: Config, model: Path | None = None) -> dict[str, Any]:
    """Everything about this machine that decides what can run."""
    report: dict[str, Any] = {
        "antiphon": importlib.metadata.version("antiphon"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count(),
        "memory_gb": _memory_gb(),
        "torch": _torch(),
        "configuration": config.digest,
        "watermark": _watermark(config),
        "engines": [_engine(section) for section in config.engines],
        "optional": _optional(),
        "memory": examine_memory(config, model),
    }
    if model is not None:
        report["checkpoint"] = {**checkpoint_files(model), **_inspected(model)}
    report["problems"] = _problems(report)
    return report


def checkpoint_files(directory: Path) -> dict[str, Any]:
    """Which parts of a checkpoint directory are there."""
    files: dict[str, str | None] = {}
    for part, names in CHECKPOINT_PARTS.items():
        files[part] = next((name for name in names if (directory / name).is_file()), None)
    missing = [part for part, name in files.items() if name is None]
    return {
        "directory": str(directory),
        "exists": directory.is_dir(),
        "files": files,
        "missing": [f"{part} ({CHECKPOINT_PARTS[part][0]})" for part in missing],
        "complete": not set(missing) - OPTIONAL_PARTS,
    }


def _inspected(directory: Path) -> dict[str, Any]:
    """Generation, sizes and keys, where there is a model to look into."""
    from antiphon.engine.inspection import inspect_checkpoint

    try:
        found = inspect_checkpoint(directory)
    except AntiphonError as error:
        return {"problems": [error.message]}
    return {
        **dataclasses.asdict(found),
        "files": checkpoint_files(directory)["files"],
        "contents": [dataclasses.asdict(each) for each in found.files],
    }


def _torch() -> dict[str, Any]:
    try:
        import torch
    except ImportError as error:
        return {"version": None, "device": None, "error": str(error)}
    cuda = torch.cuda.is_available()
    return {
        "version": torch.__version__,
        "build": torch.version.cuda or "cpu",
        "device": torch.cuda.get_device_name(0) if cuda else "cpu",
        "device_memory_gb": (
            round(torch.cuda.get_device_properties(0).total_memory / 2**30, 1) if cuda else None
        ),
        "threads": torch.get_num_threads(),
    }


def _memory_gb() -> float | None:
    with contextlib.suppress(AttributeError, ValueError, OSError):
        return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)
    return None


def _watermark(config: Config) -> dict[str, Any]:
    name = config.watermark.name
    try:
        from antiphon.server.loading import load_watermark

        load_watermark(config.watermark)
    except AntiphonError as error:
        return {"name": name, "available": False, "reason": error.message}
    except ImportError as error:
        return {"name": name, "available": False, "reason": f"{error.name} is not installed."}
    return {"name": name, "available": True, "reason": None}


def _engine(section: EngineSection) -> dict[str, Any]:
    found: dict[str, Any] = {"name": section.name, "kind": section.kind}
    if isinstance(section, CosyVoiceEngineSection):
        from antiphon.server.loading import house_checkpoint

        directory = section.model_dir or house_checkpoint()
        found["checkpoint"] = checkpoint_files(directory) if directory is not None else None
        found["available"] = directory is not None and found["checkpoint"]["complete"]
        return found
    found["available"] = importlib.util.find_spec("hibari") is not None
    return found


def _optional() -> dict[str, bool]:
    def has(module: str) -> bool:
        return importlib.util.find_spec(module) is not None

    return {
        "sound device (sounddevice)": has("sounddevice"),
        "calls (aiortc)": has("aiortc"),
        "vllm": has("vllm"),
        "opuslib": has("opuslib") and ctypes.util.find_library("opus") is not None,
    }


def _problems(report: dict[str, Any]) -> list[str]:
    problems = []
    if report["torch"]["version"] is None:
        problems.append("PyTorch cannot be imported.")
    if not report["watermark"]["available"]:
        problems.append(report["watermark"]["reason"])
    for engine in report["engines"]:
        if not engine["available"]:
            problems.append(f"The engine {engine['name']} cannot be loaded.")
    if report["memory"]["problem"] is not None:
        problems.append(report["memory"]["problem"])
    checkpoint = report.get("checkpoint")
    if checkpoint is not None and not checkpoint["complete"]:
        problems.append(
            f"{checkpoint['directory']} lacks {', '.join(checkpoint['missing'])}."
            if checkpoint["exists"]
            else f"The directory {checkpoint['directory']} does not exist."
        )
    elif checkpoint is not None:
        problems += checkpoint["problems"]
    return problems


def _print(report: dict[str, Any]) -> None:
    torch, watermark = report["torch"], report["watermark"]
    out.print(f"antiphon   {report['antiphon']}, configuration {report['configuration']}")
    out.print(f"python     {report['python']} on {report['platform']}")
    out.print(f"machine    {report['cpus']} CPUs, {report['memory_gb']} GB")
    out.print(f"torch      {torch['version']} ({torch.get('build')}), {torch['device']}")
    out.print(f"watermark  {watermark['name']}: {_yes(watermark['available'])}")
    for engine in report["engines"]:
        out.print(f"engine     {engine['name']} ({engine['kind']}): {_yes(engine['available'])}")
    for name, there in report["optional"].items():
        out.print(f"optional   {name}: {_yes(there)}")
    if "checkpoint" in report:
        _print_checkpoint(report["checkpoint"])
    print_memory(report["memory"])
    for problem in report["problems"]:
        out.print(problem, style="red", markup=False)
    if not report["problems"]:
        out.print("Nothing is missing.", style="green")


def _print_checkpoint(found: dict[str, Any]) -> None:
    for part, name in found["files"].items():
        out.print(f"checkpoint {part}: {name or '[yellow]missing[/yellow]'}")
    if "generation" not in found:
        return
    out.print(
        f"checkpoint CosyVoice {found['generation']} ({found['published_as']}), "
        f"{found['sample_rate']} Hz, {found['token_rate']} speech tokens a second",
        markup=False,
    )
    for file in found["contents"]:
        out.print(f"file       {file['name']}: {_size(file['size'])}", markup=False)
    for weights in found["weights"]:
        out.print(
            f"weights    {weights['file']}: {weights['parameters'] / 1e6:.1f} M parameters, "
            f"{', '.join(weights['dtypes'])}",
            markup=False,
        )
        for what in ("missing", "unexpected", "other_shapes"):
            for key in weights[what][:_KEYS_SHOWN]:
                out.print(f"           {what.replace('_', ' ')}: {key}", markup=False)
            if len(weights[what]) > _KEYS_SHOWN:
                out.print(f"           and {len(weights[what]) - _KEYS_SHOWN} more", markup=False)
    for key in found["unknown_keys"]:
        out.print(f"           unknown in the YAML: {key}", markup=False)
    if found["voices"]:
        out.print(f"voices     {', '.join(found['voices'])}", markup=False)


def _size(count: int | None) -> str:
    if count is None:
        return "missing"
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"


def _yes(value: bool) -> str:
    return "[green]yes[/green]" if value else "[yellow]no[/yellow]"
