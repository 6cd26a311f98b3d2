"""vLLM's engine under supervision: started, watched, restarted with back-off, stopped.

Everything here imports vLLM late: a machine without it can read this module.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from antiphon.engine.errors import InvalidConfiguration, SynthesisFailed
from antiphon.engine.speech_lm.vllm_settings import (
    Device,
    VLLMSettings,
    engine_arguments,
    installed_version,
)

if TYPE_CHECKING:
    from vllm.v1.engine.async_llm import AsyncLLM

FIRST_BACK_OFF_S: Final = 1.0
LONGEST_BACK_OFF_S: Final = 60.0
SHUTDOWN_S: Final = 5.0
PROCESS_NAME: Final = "EngineCore"

_log = logging.getLogger("antiphon.speech_lm")


def quiet_environment() -> None:
    """Switch off usage reports and hub look-ups, before vLLM is imported."""
    os.environ["VLLM_NO_USAGE_STATS"] = "1"
    os.environ["VLLM_DO_NOT_TRACK"] = "1"
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TRANSFORMERS_OFFLINE"] = "1"
    # It would win over the budget that the configuration states.
    os.environ.pop("VLLM_CPU_KVCACHE_SPACE", None)


class VLLMEngine:
    """One `AsyncLLM` that comes back when it dies.

    `ready` is false from the death of an engine process until a new one has started; `get` raises
    meanwhile.
    """

    def __init__(
        self,
        model: Path,
        settings: VLLMSettings,
        on_start: Callable[[AsyncLLM], Awaitable[None]],
        on_death: Callable[[], None],
    ) -> None:
        """Prepare; `start` starts.

        Args:
            model: an exported directory.
            settings: see there.
            on_start: checks and warm-up, awaited with each new engine before it is ready.
            on_death: called when an engine process has ended or the engine is closed.
        """
        self._model = model
        self._settings = settings
        self._on_start = on_start
        self._on_death = on_death
        self._engine: AsyncLLM | None = None
        self.processes: list[multiprocessing.process.BaseProcess] = []
        self._died = asyncio.Event()
        self._up = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self.restarts = 0

    @property
    def ready(self) -> bool:
        """Whether requests can be taken now."""
        return self._up.is_set() and not self._died.is_set()

    @property
    def started(self) -> bool:
        """Whether it was started and not closed; it may be away for a restart."""
        return self._keeper is not None

    async def wait_ready(self) -> None:
        """Wait until requests can be taken."""
        await self._up.wait()

    def get(self) -> AsyncLLM:
        """Return the running engine.

        Raises:
            SynthesisFailed: it died and is not back yet, or was closed.
        """
        if self._engine is None or not self.ready:
            raise SynthesisFailed("The speech LM's engine is not running; it is being restarted.")
        return self._engine

    async def start(self) -> None:
        """Start the engine and its supervision.

        Raises:
            InvalidConfiguration: see `installed_version`.
            SynthesisFailed: the engine does not start.
        """
        installed_version()
        quiet_environment()
        try:
            await self._launch()
        except InvalidConfiguration:
            raise
        except Exception as error:
            await self._stop_engine()
            raise SynthesisFailed(f"vLLM did not start: {error}") from error
        self._keeper = asyncio.create_task(self._keep_alive())

    async def _launch(self) -> None:
        before = set(multiprocessing.active_children())
        engine = await asyncio.to_thread(self._build)
        self._engine = engine
        self.processes = [
            child
            for child in multiprocessing.active_children()
            # Flow and vocoder may have a process too, which may be replaced meanwhile.
            if child not in before and child.name.startswith(PROCESS_NAME)
        ]
        self._died.clear()
        loop = asyncio.get_running_loop()
        for process in self.processes:
            loop.add_reader(process.sentinel, self._report_death)
        await self._on_start(engine)
        self._up.set()

    def _build(self) -> AsyncLLM:
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        from antiphon.engine.speech_lm.vllm_plugin import OURS, register

        os.environ[OURS] = "1"
        register()
        arguments = engine_arguments(self._model, self._settings, Device.here())
        return AsyncLLM.from_engine_args(AsyncEngineArgs(**arguments))

    def _report_death(self) -> None:
        self._forget_sentinels()
        self._up.clear()
        self._died.set()

    def _forget_sentinels(self) -> None:
        loop = asyncio.get_running_loop()
        for process in self.processes:
            loop.remove_reader(process.sentinel)

    async def _keep_alive(self) -> None:
        """Wait for deaths and start anew, each time waiting longer until a start succeeds."""
        back_off = FIRST_BACK_OFF_S
        while True:
            await self._died.wait()
            await self._stop_engine()
            _log.warning("the speech LM's engine died; the next one starts in %.0f s", back_off)
            await asyncio.sleep(back_off)
            try:
                await self._launch()
            except Exception as error:  # What keeps it from starting may have passed next time.
                _log.error("the speech LM's engine does not start (%s)", type(error).__name__)
                self._died.set()
                back_off = min(2 * back_off, LONGEST_BACK_OFF_S)
            else:
                _log.warning("the speech LM's engine runs again")
                self.restarts += 1
                back_off = FIRST_BACK_OFF_S

    async def _stop_engine(self) -> None:
        self._up.clear()
        self._on_death()
        engine, self._engine = self._engine, None
        processes, self.processes = self.processes, []
        loop = asyncio.get_running_loop()
        for process in processes:
            with contextlib.suppress(ValueError):
                loop.remove_reader(process.sentinel)
        if engine is not None:
            # Here and not in a thread: its sockets belong to this event loop, and closed behind
            # its back their numbers would come back as the next engine's, never heard again.
            with contextlib.suppress(Exception):
                engine.shutdown(timeout=SHUTDOWN_S)
        await asyncio.to_thread(_reap, processes)

    async def close(self) -> None:
        """Stop supervision and engine. Idempotent."""
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper
            self._keeper = None
        await self._stop_engine()


def _reap(processes: list[multiprocessing.process.BaseProcess]) -> None:
    """Make sure that no process of a dead engine stays, running or as a zombie."""
    for process in processes:
        process.join(5)
        if process.is_alive():
            process.kill()
            process.join(5)
