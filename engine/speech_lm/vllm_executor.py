"""vLLM's worker in the process of its engine core, for a CPU.

vLLM gives a CPU worker a process of its own, bound to one set of cores: each step then crosses two
processes that wait for each other, and the worker spins for a second behind every message. On a
small machine these take the cores that the step itself needs.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from vllm.v1.executor.uniproc_executor import UniProcExecutor

from antiphon.engine.speech_lm.vllm_plugin import leave_interrupts_to_server


class InCoreExecutor(UniProcExecutor):  # type: ignore[misc]  # vLLM ships no types
    """One worker, called and not messaged."""

    def _init_executor(self) -> None:
        # The worker forbids any change of it later. `OMP_NUM_THREADS` is the user's word;
        # without it one core is left to the server.
        if not os.environ.get("OMP_NUM_THREADS"):
            torch.set_num_threads(max(1, torch.get_num_threads() - 1))
        self._stepped = False
        super()._init_executor()

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        """Run one step; see `Executor`."""
        if not self._stepped:
            # vLLM 0.31 sets its own handler once plug-ins are loaded and before the first step.
            self._stepped = True
            leave_interrupts_to_server()
        return super().execute_model(scheduler_output, non_block)
