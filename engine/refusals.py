"""Requests held against what an engine declares, before any work is done."""

from __future__ import annotations

from antiphon.engine.audio_file import DecodedAudio
from antiphon.engine.conversion import check_source
from antiphon.engine.errors import UnsupportedFeature
from antiphon.engine.interface import Capabilities, Mode, SpeechRequest


def refuse_unsupported(request: SpeechRequest, able: Capabilities) -> None:
    """Return if an engine can do what is asked for.

    Raises:
        UnsupportedFeature, InvalidRequest: naming the field of the request.
    """
    slowest, fastest = able.speed
    # Written so that NaN is refused too.
    if not slowest <= request.speed <= fastest:
        raise UnsupportedFeature(
            f"The model {able.model} speaks at speeds from {slowest:g} to {fastest:g}.",
            field="speed",
            limit=fastest if request.speed > fastest else slowest,
        )
    if request.instruct and Mode.INSTRUCT not in able.modes:
        raise UnsupportedFeature(f"The model {able.model} takes no instructions.", field="instruct")
    if request.language is not None:
        known = ", ".join(sorted(able.languages))
        if request.language.split("-")[0].lower() not in able.languages:
            raise UnsupportedFeature(
                f"The model {able.model} speaks {known}.", field="language", limit=known
            )
    if request.source is not None:
        _refuse_conversion(request, request.source, able)
    for field in ("first_hop", "max_hop", "hop_growth"):
        if able.hop_tokens is None and getattr(request, field) is not None:
            raise UnsupportedFeature(f"The model {able.model} has no hops.", field=field)


def _refuse_conversion(request: SpeechRequest, source: DecodedAudio, able: Capabilities) -> None:
    if Mode.VOICE_CONVERSION not in able.modes:
        raise UnsupportedFeature(
            f"The model {able.model} cannot convert voices: its speech tokenizer is not there.",
            field="source",
        )
    for field in ("instruct", "language"):
        if getattr(request, field) is not None:
            raise UnsupportedFeature(
                f"A conversion says what the recording says; it takes no {field}.", field=field
            )
    check_source(source)
