"""From configuration to loaded engines. Heavy imports happen here, when something is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from antiphon.engine.errors import CheckpointError, InvalidConfiguration, WatermarkUnavailable
from antiphon.engine.interface import Engine
from antiphon.engine.watermark.interface import Watermark
from antiphon.server.config import (
    Config,
    CosyVoiceEngineSection,
    EngineSection,
    PresetEngineSection,
    TextSection,
    WatermarkSection,
)
from antiphon.server.engines import EngineSet
from antiphon.server.memory import check_memory
from antiphon.server.voices.config import VoicesSection
from antiphon.server.voices.hearing import enrolment_settings

MOST_CACHE_MIB = 32 << 10
"""On a GPU, where nothing is configured."""

if TYPE_CHECKING:
    from antiphon.engine.acoustic.interface import AcousticSettings
    from antiphon.engine.acoustic.settings import EngineSettings
    from antiphon.engine.text.grammar import Grammar
    from antiphon.engine.voice.enrol import EnrolmentSettings
    from antiphon.engine.voice.folder import VoiceFolder

_log = structlog.get_logger("antiphon.server")


def load_watermark(section: WatermarkSection) -> Watermark:
    """Load the configured watermark.

    Raises:
        WatermarkUnavailable: it cannot be loaded; the message says what to do.
    """
    if section.name == "none":
        from antiphon.engine.watermark.none import NoWatermark

        return NoWatermark()
    if section.name == "perth":
        from antiphon.engine.watermark.perth import PerthWatermark

        return PerthWatermark()
    from antiphon.engine.watermark.audioseal import AudioSealWatermark

    if section.weights is None:
        raise WatermarkUnavailable(
            "The audioseal watermark needs the path of its weights.", field="watermark.weights"
        )
    return AudioSealWatermark(section.weights, payload=section.payload)


def load_voices(section: VoicesSection) -> VoiceFolder | None:
    """Open the deployment's folder of voices, if it has one.

    Raises:
        InvalidConfiguration: the folder cannot be made or read.
    """
    if section.folder is None:
        return None
    from antiphon.engine.voice.folder import VoiceFolder
    from antiphon.engine.voice.store import VoiceStore

    try:
        store = VoiceStore(section.folder, limit=section.max_voices)
    except OSError as error:
        raise InvalidConfiguration(
            f"The folder of voices {section.folder} cannot be used: {error.strerror}.",
            field="voices.folder",
        ) from error
    return VoiceFolder(store, purpose=section.purpose)


@dataclass(frozen=True, slots=True)
class Parts:
    """What the CosyVoice engines of a deployment share, each loaded when it is needed."""

    enrolment: Callable[[], EnrolmentSettings] | None = None
    grammar: Callable[[], Grammar | None] | None = None


def load_engine(
    section: EngineSection,
    watermark: Watermark,
    *,
    max_sessions: int,
    voices: VoiceFolder | None = None,
    parts: Parts | None = None,
) -> Engine:
    """Load one engine that speaks up to `max_sessions` turns at once.

    Raises:
        CheckpointError, InvalidConfiguration: it cannot be loaded.
    """
    if isinstance(section, PresetEngineSection):
        from antiphon.engine.preset.engine import PresetEngine

        return PresetEngine(
            watermark, name=section.name, text_queue_characters=section.text_queue_chars
        )
    return _load_cosyvoice(section, watermark, max_sessions, voices, parts or Parts())


def _load_cosyvoice(
    section: CosyVoiceEngineSection,
    watermark: Watermark,
    max_sessions: int,
    voices: VoiceFolder | None,
    parts: Parts,
) -> Engine:
    from antiphon.engine.cosyvoice import CosyVoiceEngine
    from antiphon.engine.generations import choose_device
    from antiphon.engine.session import SessionSettings

    directory = model_directory(section)
    settings = SessionSettings(
        hops=section.hops(),
        acoustic=session_acoustics(section),
        text_queue_characters=section.text_queue_chars,
    )
    device = choose_device(section.device)
    return CosyVoiceEngine.load(
        directory,
        watermark,
        name=section.name,
        settings=settings,
        max_sessions=max_sessions,
        device=device,
        acoustic=engine_acoustics(section, device),
        top_p=section.top_p,
        lm=section.lm.settings(),
        voices=voices,
        enrolment=parts.enrolment,
        grammar=parts.grammar,
    )


def model_directory(section: CosyVoiceEngineSection) -> Path:
    """Return where an engine's checkpoint lies.

    Raises:
        CheckpointError: none is named, and none is inside the package.
    """
    directory = section.model_dir or house_checkpoint()
    if directory is None:
        raise CheckpointError(
            "No checkpoint comes with this package; name one with `model_dir`.", field="model_dir"
        )
    return directory


def _load_grammar(section: TextSection) -> Grammar | None:
    from antiphon.engine.text.grammar import load_grammar

    grammar = load_grammar(section.grammar, section.ttsfrd_resource)
    _log.info("whole texts", grammar="none" if grammar is None else grammar.name)
    return grammar


def session_acoustics(section: CosyVoiceEngineSection) -> AcousticSettings:
    """Return what a deployment asks of flow and vocoder for every session."""
    from antiphon.engine.acoustic.interface import AcousticSettings

    return AcousticSettings(
        steps=section.solver_steps,
        cfg_rate=section.cfg_rate,
        solver=section.solver,
        left_context_chunks=section.left_context_chunks,
    )


def engine_acoustics(
    section: CosyVoiceEngineSection, device: str, card_gib: float | None = None
) -> EngineSettings:
    """Return memory, precision and place of flow and vocoder on a device.

    `card_gib` is a GPU's memory, of which caches take a quarter unless told otherwise; None: of
    the one that is here.
    """
    from antiphon.engine.acoustic.settings import EngineSettings, gpu_settings
    from antiphon.engine.memory import device_gib

    chosen: dict[str, Any] = {
        "own_process": section.acoustic_process,
        "hang_limit_s": section.acoustic_hang_s,
    }
    if section.precision is not None:
        chosen["precision"] = section.precision
    if section.cuda_graphs is not None:
        chosen["cuda_graphs"] = section.cuda_graphs
    cache_mib = section.cache_mib
    if cache_mib is None and device != "cpu":
        card_gib = device_gib(device) if card_gib is None else card_gib
        cache_mib = min(MOST_CACHE_MIB, int(card_gib * 1024) // 4)
    if cache_mib is not None:
        chosen |= {"cache_mib": cache_mib, "voices_mib": cache_mib // (2 if device == "cpu" else 4)}
    return EngineSettings(**chosen) if device == "cpu" else gpu_settings(**chosen)


def house_checkpoint() -> Path | None:
    """Directory of the checkpoint inside the package, if there is one."""
    import antiphon.engine

    directory = Path(antiphon.engine.__path__[0]) / "checkpoint" / "nano"
    return directory if directory.is_dir() else None


def in_this_process(config: Config) -> Config:
    """Return a configuration whose engines start no process of ours."""
    engines = [
        section.model_copy(update={"acoustic_process": False})
        if isinstance(section, CosyVoiceEngineSection)
        else section
        for section in config.engines
    ]
    return config.model_copy(update={"engines": tuple(engines)})


def load_engines(config: Config) -> EngineSet:
    """Load the watermark, then every engine; nothing is loaded where all cannot fit.

    Raises:
        WatermarkUnavailable, CheckpointError, InvalidConfiguration: nothing is served then.
    """
    check_memory(config)
    watermark = load_watermark(config.watermark)
    limit = config.server.limits.max_sessions
    folder = load_voices(config.voices)
    parts = Parts(
        enrolment=enrolment_settings(config.voices), grammar=partial(_load_grammar, config.text)
    )
    engines = EngineSet(
        {
            section.name: load_engine(
                section, watermark, max_sessions=limit, voices=folder, parts=parts
            )
            for section in config.engines
        },
        model=config.model,
        voice=config.voice,
        watermark=watermark,
        hops={
            section.name: section.hops()
            for section in config.engines
            if isinstance(section, CosyVoiceEngineSection)
        },
        folder=folder,
        isolated=[
            section.name
            for section in config.engines
            if isinstance(section, CosyVoiceEngineSection) and section.lm.isolate_callers
        ],
    )
    engines.check_defaults()
    return engines
