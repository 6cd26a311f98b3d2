"""Repetition-aware sampling and the layout's constraints inside vLLM, over its whole batch.

The processor draws itself and leaves one id open in each row, so that vLLM's arg max takes it. The
draw is that of `sampling.py`, with the request's own counter-based random numbers: exact, and the
same on the torch backend. All state is arrays with one row for each of vLLM's batch slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from vllm import SamplingParams
from vllm.config import VllmConfig
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

from antiphon.engine.speech_lm.layout import Constraint
from antiphon.engine.speech_lm.request import Sampling
from antiphon.engine.speech_lm.sampling import DrawBatch, draw_batch

EXTRA_ARGS_KEY: Final = "antiphon"
MAX_WINDOW: Final = 64
MAX_TOP_K: Final = 256


@dataclass(frozen=True, slots=True)
class RowSettings:
    """What one vLLM request carries in `SamplingParams.extra_args`, as plain values."""

    sampling: Sampling
    constraint: Constraint
    run: int
    """Samples under `constraint`; `then` holds afterwards."""
    then: Constraint
    seed: int
    step: int
    """Draws that the sequence took in earlier requests or segments."""
    history: tuple[int, ...]
    """Ids sampled before, newest last: what the window looks back on."""

    def packed(self) -> dict[str, Any]:
        """Return the form that travels between processes."""
        values = asdict(self)
        values["history"] = list(self.history)
        return {EXTRA_ARGS_KEY: values}

    @classmethod
    def unpacked(cls, extra: dict[str, Any] | None) -> RowSettings | None:
        """Return the settings of a request, or None where it is not one of ours.

        Raises:
            ValueError: it is one of ours and malformed.
        """
        values = (extra or {}).get(EXTRA_ARGS_KEY)
        if values is None:
            return None
        try:
            sampling = Sampling(**values["sampling"])
            settings = cls(
                sampling=sampling,
                constraint=Constraint(values["constraint"]),
                run=int(values["run"]),
                then=Constraint(values["then"]),
                seed=int(values["seed"]),
                step=int(values["step"]),
                history=tuple(map(int, values["history"])),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"malformed {EXTRA_ARGS_KEY} arguments: {error}") from error
        if not 1 <= sampling.window <= MAX_WINDOW or not 1 <= sampling.top_k <= MAX_TOP_K:
            raise ValueError(f"window must be 1 to {MAX_WINDOW}, top_k 1 to {MAX_TOP_K}")
        return settings


class SpeechSampler(LogitsProcessor):  # type: ignore[misc]  # vLLM ships no types
    """vLLM logits processor; requests without our arguments pass through unchanged."""

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Refuse malformed arguments where the request is made."""
        RowSettings.unpacked(sampling_params.extra_args)

    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
        config = vllm_config.model_config.hf_config
        rows = getattr(config, "speech_rows", 0)
        self._device = device
        self._closed = _closed(config, rows).to(device) if rows else None
        self._fault = getattr(config, "speech_fault", 0)
        size = vllm_config.scheduler_config.max_num_seqs
        self._outputs: list[Sequence[int]] = [()] * size
        self._ours = np.zeros(size, bool)
        self._greedy = np.zeros(size, bool)
        self._top_p = np.ones(size, np.float32)
        self._top_k = np.ones(size, np.int64)
        self._repeats = np.full(size, np.inf)
        self._window = np.ones(size, np.int64)
        self._recent = np.full((size, MAX_WINDOW), -1, np.int64)
        self._seed = np.zeros(size, np.uint64)
        self._step = np.zeros(size, np.uint64)
        self._constraint = np.zeros((size, 2), np.int64)
        self._run = np.zeros(size, np.int64)
        self._taken = np.zeros(size, np.int64)
        """Samples that vLLM has kept of each row."""
        self._last = np.full(size, -1, np.int64)
        self._batch = 0
        self._arrays = (
            self._ours, self._greedy, self._top_p, self._top_k, self._repeats, self._window,
            self._recent, self._seed, self._step, self._constraint, self._run, self._taken,
            self._last,
        )  # fmt: skip

    def is_argmax_invariant(self) -> bool:
        """No: the draw is what decides the arg max."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow vLLM's batch: rows that left, came or moved, and what was kept of each."""
        if batch_update is not None:
            self._batch = batch_update.batch_size
            for index in batch_update.removed:
                self._ours[index] = False
                self._outputs[index] = ()
            for index, params, _, outputs in batch_update.added:
                self._add(index, RowSettings.unpacked(params.extra_args), outputs)
            for source, target, direction in batch_update.moved:
                self._move(source, target, swap=direction == MoveDirectionality.SWAP)
        self._keep_up()

    def _add(self, index: int, row: RowSettings | None, outputs: Sequence[int]) -> None:
        self._ours[index] = row is not None
        self._outputs[index] = outputs
        if row is None:
            return
        sampling = row.sampling
        self._greedy[index] = sampling.greedy
        self._top_p[index] = sampling.top_p
        self._top_k[index] = sampling.top_k
        self._repeats[index] = sampling.window * sampling.threshold
        self._window[index] = sampling.window
        self._seed[index] = row.seed & ((1 << 64) - 1)
        self._step[index] = row.step
        self._constraint[index] = (row.constraint, row.then)
        self._run[index] = row.run
        self._taken[index] = len(outputs)
        # A row that comes back after a preemption has outputs already.
        history = (*row.history, *outputs)[-MAX_WINDOW:]
        self._recent[index] = -1
        if history:
            self._recent[index, -len(history) :] = history

    def _move(self, source: int, target: int, *, swap: bool) -> None:
        pair, reverse = [target, source], [source, target]
        if swap:
            for array in self._arrays:
                array[pair] = array[reverse]
            self._outputs[target], self._outputs[source] = (
                self._outputs[source], self._outputs[target],
            )  # fmt: skip
            return
        for array in self._arrays:
            array[target] = array[source]
        self._outputs[target] = self._outputs[source]
        self._ours[source] = False
        self._outputs[source] = ()

    def _keep_up(self) -> None:
        """Take over what vLLM kept of the last draws: it throws those of partial prefills away."""
        size = self._batch
        lengths = np.fromiter(map(len, self._outputs[:size]), np.int64, size)
        kept = lengths > self._taken[:size]
        if kept.any():
            rows = kept.nonzero()[0]
            self._recent[rows, :-1] = self._recent[rows, 1:]
            self._recent[rows, -1] = self._last[rows]
            self._taken[rows] = lengths[rows]

    def apply(self, logits: Tensor) -> Tensor:
        """Close what may not be sampled, draw, and leave only the drawn ids open."""
        size = logits.shape[0]
        if self._closed is None or not self._ours[:size].any():
            return logits
        rows = self._ours[:size].nonzero()[0]
        index = torch.from_numpy(rows).to(self._device)
        everything = len(rows) == size
        ours = (logits if everything else logits[index]).float()
        finite = ours.sum(-1).isfinite()
        phase = (self._taken[rows] >= self._run[rows]).astype(np.int64)
        constraint = torch.from_numpy(self._constraint[rows, phase]).to(self._device)
        ours = ours.masked_fill(self._closed[constraint], -torch.inf)
        # Nothing is drawn from numbers that are not finite: their rows report a fault.
        tokens = torch.where(finite, self._draw(ours.nan_to_num(0.0), rows), self._fault)
        self._last[rows] = tokens.cpu().numpy()
        opened = torch.full_like(ours, -torch.inf).scatter_(1, tokens[:, None], 0.0)
        if everything:
            return opened.to(logits.dtype)
        logits[index] = opened.to(logits.dtype)
        return logits

    def _draw(self, logits: Tensor, rows: np.ndarray[Any, Any]) -> Tensor:
        if self._greedy[rows].all():
            return logits.argmax(-1)
        place = np.arange(MAX_WINDOW)[None] >= MAX_WINDOW - self._window[rows, None]
        recent = np.where(place, self._recent[rows], -1)

        def tensor(array: np.ndarray[Any, Any]) -> Tensor:
            return torch.from_numpy(array).to(self._device)

        batch = DrawBatch(
            top_p=tensor(self._top_p[rows]),
            top_k=tensor(self._top_k[rows]),
            repeats=tensor(self._repeats[rows]),
            greedy=tensor(self._greedy[rows]),
            recent=tensor(recent),
            seeds=self._seed[rows],
            steps=self._step[rows] + self._taken[rows].astype(np.uint64),
        )
        return draw_batch(logits, batch, int(self._top_k[rows].max()))


def _closed(config: Any, rows: int) -> Tensor:
    """Return which rows each `Constraint` closes, (constraints, rows)."""
    speech = torch.arange(rows) < config.speech_first_stop
    closed = torch.zeros(len(Constraint), rows, dtype=torch.bool)
    for constraint in (Constraint.SPEECH, Constraint.SPEECH_OR_FILL, Constraint.SPEECH_OR_EOS):
        closed[constraint] = ~speech
    closed[Constraint.SPEECH_OR_FILL, config.speech_fill] = False
    closed[Constraint.SPEECH_OR_EOS, config.speech_eos] = False
    closed[Constraint.ANY_BUT_FIRST_STOP, config.speech_first_stop] = True
    return closed
