"""The ONNX networks of a model directory, with their signatures checked before use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from antiphon.engine.errors import CheckpointError, SynthesisFailed


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input, by position: names differ between exports, positions do not."""

    kind: str
    """ONNX type, e.g. `tensor(float)`."""
    shape: tuple[int | None, ...]
    """None where any size goes."""


def providers() -> list[str]:
    """Return the execution providers of this machine, fastest first."""
    wanted = ("CUDAExecutionProvider", "CPUExecutionProvider")
    return [name for name in wanted if name in onnxruntime.get_available_providers()]


class OnnxPart:
    """A loaded ONNX network with one output of interest."""

    def __init__(self, path: Path, inputs: Sequence[InputSpec]) -> None:
        """Load the network and compare its inputs with what is expected.

        Raises:
            CheckpointError: field is the file name; absent, damaged or of another signature.
        """
        self._name = path.name
        if not path.is_file():
            raise CheckpointError(f"{path.name} is missing.", field=path.name)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4  # its own log would print paths and shapes of user data
        try:
            self._session = onnxruntime.InferenceSession(
                # Its fallback is the same network on the same processor again, and prints.
                str(path),
                sess_options=options,
                providers=providers(),
                enable_fallback=0,
            )
        except Exception as error:  # onnxruntime's exceptions have no base class of their own
            raise CheckpointError(
                f"{path.name} cannot be loaded by onnxruntime.", field=path.name
            ) from error
        self._check(inputs)

    def _check(self, expected: Sequence[InputSpec]) -> None:
        actual = self._session.get_inputs()
        if len(actual) != len(expected) or not self._session.get_outputs():
            raise self._mismatch(f"{len(actual)} inputs instead of {len(expected)}")
        for place, (found, spec) in enumerate(zip(actual, expected, strict=True)):
            if found.type != spec.kind:
                raise self._mismatch(f"input {place} is {found.type} instead of {spec.kind}")
            sizes = found.shape
            if len(sizes) != len(spec.shape) or any(
                isinstance(size, int) and wanted is not None and size != wanted
                for size, wanted in zip(sizes, spec.shape, strict=True)
            ):
                raise self._mismatch(f"input {place} has shape {sizes} instead of {spec.shape}")

    def _mismatch(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"{self._name} does not have the expected signature: {what}.", field=self._name
        )

    def run(self, *inputs: NDArray[Any]) -> NDArray[Any]:
        """Return the first output.

        Raises:
            SynthesisFailed: the network refused the inputs.
        """
        names = [node.name for node in self._session.get_inputs()]
        try:
            outputs = self._session.run(None, dict(zip(names, inputs, strict=True)))
        except Exception as error:  # see above
            raise SynthesisFailed(f"{self._name} failed.", field=self._name) from error
        return np.asarray(outputs[0])
