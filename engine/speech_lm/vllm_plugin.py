"""Entry points that vLLM's own processes load: the model class by name, nothing else."""

from __future__ import annotations


def register() -> None:
    """Tell vLLM about the speech LM (group `vllm.general_plugins`).

    The class is named, not imported: importing it would start up vLLM's model code in processes
    that never need it.
    """
    from vllm import ModelRegistry

    from antiphon.engine.speech_lm.vllm_export import ARCHITECTURE

    if ARCHITECTURE not in ModelRegistry.get_supported_archs():
        ModelRegistry.register_model(
            ARCHITECTURE, "antiphon.engine.speech_lm.vllm_model:AntiphonSpeechLM"
        )
