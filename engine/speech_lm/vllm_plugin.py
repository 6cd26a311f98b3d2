"""Entry point that vLLM's own processes load: the model class by name, and who ends them."""

from __future__ import annotations

import multiprocessing
import os
import signal
from typing import Final

OURS: Final = "ANTIPHON_ENDS_ITS_ENGINE"
"""Environment variable: the process that started vLLM ends its processes itself."""


def leave_interrupts_to_server() -> None:
    """Ignore Ctrl-C in a process of vLLM's that the server ends itself.

    It reaches every process of the terminal; open turns may then still end.
    """
    if os.environ.get(OURS) and multiprocessing.parent_process() is not None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def register() -> None:
    """Tell vLLM about the speech LM (group `vllm.general_plugins`).

    The class is named, not imported: importing it would start up vLLM's model code in processes
    that never need it.
    """
    leave_interrupts_to_server()

    from vllm import ModelRegistry

    from antiphon.engine.speech_lm.vllm_export import ARCHITECTURE

    if ARCHITECTURE not in ModelRegistry.get_supported_archs():
        ModelRegistry.register_model(
            ARCHITECTURE, "antiphon.engine.speech_lm.vllm_model:AntiphonSpeechLM"
        )
