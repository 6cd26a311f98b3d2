"""The engines of a deployment: built from the configuration, found by name, checked by ability."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from antiphon.engine.errors import (
    InvalidConfiguration,
    InvalidRequest,
    UnknownVoice,
    UnsupportedFeature,
)
from antiphon.engine.hops import GROWTHS, LONGEST_LEAD_S, HopSettings
from antiphon.engine.interface import (
    MAX_INSTRUCTION,
    Capabilities,
    Engine,
    Mode,
    SpeechRequest,
    VoiceInfo,
)
from antiphon.engine.text.validate import validate_text
from antiphon.engine.watermark.interface import Watermark
from antiphon.server.audio import check_rate, parse_format
from antiphon.server.settings import Split, TurnSettings

if TYPE_CHECKING:
    from antiphon.engine.audio_file import DecodedAudio
    from antiphon.engine.voice.folder import VoiceFolder

MAX_NAME_CHARS = 128
MOST_NAMED = 20
"""Voices that an error message lists."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request says about how to speak. None: the deployment's default."""

    model: str | None = None
    voice: str | None = None
    language: str | None = None
    response_format: str = "pcm"
    sample_rate: int | None = None
    speed: float = 1.0
    seed: int | None = None
    instructions: str | None = None
    first_hop: int | None = None
    max_hop: int | None = None
    hop_growth: float | None = None
    lead_s: float | None = None
    """Longest lead over the listener that work is done for; None: as capacity allows."""
    word_timestamps: bool = False
    split: str = "none"
    whole_text: bool = False
    """All of the text is sent before any is spoken."""
    source: DecodedAudio | None = field(default=None, compare=False, repr=False)
    """A recording to be converted, in place of text."""
    tenant: str | None = None
    """Who asks; used by models whose cache is kept apart for different callers."""


class EngineSet:
    """Engines by model name, with the deployment's defaults."""

    def __init__(
        self,
        engines: Mapping[str, Engine],
        *,
        model: str,
        voice: str | None,
        watermark: Watermark,
        hops: Mapping[str, HopSettings] | None = None,
        folder: VoiceFolder | None = None,
        isolated: Collection[str] = (),
    ) -> None:
        self._engines = dict(engines)
        self.model = model
        self.voice = voice
        self.watermark = watermark
        self.folder = folder
        """Voices of this deployment that were made of recordings."""
        self._hops = dict(hops or {})
        """The schedule of each model that has hops."""
        self._isolated = frozenset(isolated)
        """Models whose callers share nothing cached."""

    @property
    def models(self) -> Sequence[str]:
        """Names by which requests choose an engine, the default first."""
        return sorted(self._engines, key=lambda name: (name != self.model, name))

    @property
    def away(self) -> list[str]:
        """Models that cannot speak now, because a part of theirs died and is being restarted."""
        return [name for name in self.models if not self._engines[name].ready]

    def engine(self, model: str) -> Engine:
        """The engine of a model that `resolve` named."""
        return self._engines[model]

    def known_model(self, model: str) -> str:
        """Return the name of a model that is loaded.

        Raises:
            UnsupportedFeature: it is not.
        """
        if model not in self._engines:
            known = ", ".join(self.models)
            raise UnsupportedFeature(
                f"No model {model[:MAX_NAME_CHARS]!r} is loaded here; choose one of {known}.",
                field="model",
                limit=known,
            )
        return model

    def voices(self) -> list[tuple[str, VoiceInfo]]:
        """Every voice with its model, the default model's first."""
        return [(name, voice) for name in self.models for voice in self._engines[name].voices()]

    @property
    def default_voice(self) -> tuple[str, str | None]:
        """Model and voice of a request that names neither; None where the model has no voice."""
        return self.model, self._default_voice(self.model)

    def check_defaults(self) -> None:
        """Refuse a default voice that the default engine does not have.

        Raises:
            InvalidConfiguration: `field` is `voice`.
        """
        known = [voice.name for voice in self._engines[self.model].voices()]
        if self.voice is not None and self.voice not in known:
            raise InvalidConfiguration(
                f"The default voice {self.voice!r} is none of {self.model}'s: {', '.join(known)}.",
                field="voice",
                limit=", ".join(known),
            )

    async def warm_up(self) -> None:
        """Let every engine speak once."""
        for engine in self._engines.values():
            await engine.warm_up()

    async def close(self) -> None:
        """Free every engine."""
        await asyncio.gather(*(engine.close() for engine in self._engines.values()))

    def resolve(self, wanted: Wanted) -> TurnSettings:
        """Check a request against what the engines can do.

        Raises:
            UnknownVoice, UnsupportedFeature, InvalidRequest: naming the field and its limit.
        """
        model = self._model(wanted)
        engine = self._engines[model]
        able = engine.capabilities
        voice = self._voice(wanted, model)
        fmt = parse_format(wanted.response_format)
        rate = wanted.sample_rate if wanted.sample_rate is not None else able.sample_rate
        check_rate(fmt, rate)
        _check_request(wanted, able)
        try:
            split = Split(wanted.split)
        except ValueError:
            known = ", ".join(Split)
            raise InvalidRequest(
                f"split_granularity is one of {known}.", field="split_granularity", limit=known
            ) from None
        first_hop = None
        if able.hop_tokens is not None:
            first_hop = wanted.first_hop
            if model in self._hops:
                hops = self._hops[model]
                hops = hops.asked(wanted.first_hop, wanted.max_hop, wanted.hop_growth)
                first_hop = hops.first_hop
        return TurnSettings(
            model=model,
            request=SpeechRequest(
                voice=voice,
                language=wanted.language,
                speed=wanted.speed,
                seed=wanted.seed,
                instruct=wanted.instructions or None,
                first_hop=wanted.first_hop,
                max_hop=wanted.max_hop,
                hop_growth=wanted.hop_growth,
                lead_s=wanted.lead_s,
                tenant=wanted.tenant if model in self._isolated else None,
                whole_text=wanted.whole_text,
                source=wanted.source,
            ),
            format=fmt,
            sample_rate=rate,
            watermark=self.watermark.name,
            hop_tokens=first_hop,
            word_timestamps=wanted.word_timestamps,
            split=split,
        )

    def _model(self, wanted: Wanted) -> str:
        if wanted.model is not None:
            return self.known_model(wanted.model)
        if wanted.voice is not None:
            # A voice says which engine is meant where the request does not.
            for name, voice in self.voices():
                if voice.name == wanted.voice:
                    return name
        return self.model

    def _voice(self, wanted: Wanted, model: str) -> str:
        """The voice of a request, which may be spoken with now."""
        name = wanted.voice if wanted.voice is not None else self._default_voice(model)
        if name is None:
            raise UnknownVoice(
                f"The model {model} has no voice yet; make one of a recording.", field="voice"
            )
        try:
            self._engines[model].check_voice(name)
        except UnknownVoice:
            self._check_made_for(name, model)
            known = [voice.name for voice in self._engines[model].voices()]
            listed = ", ".join(known[:MOST_NAMED]) + (", …" if len(known) > MOST_NAMED else "")
            raise UnknownVoice(
                f"The model {model} has no voice {name[:MAX_NAME_CHARS]!r}; it has "
                f"{listed or 'none yet'}.",
                field="voice",
                limit=listed,
            ) from None
        return name

    def _check_made_for(self, name: str, model: str) -> None:
        """Say so where a voice is unknown to a model because it was made for another.

        Raises:
            UnsupportedFeature: it was.
        """
        cards = self.folder.cards() if self.folder is not None else []
        made_for = next((card.model for card in cards if card.name == name), None)
        if made_for is not None:
            raise UnsupportedFeature(
                f"The voice {name} was made for {made_for} and cannot be used with {model}.",
                field="voice",
            )

    def _default_voice(self, model: str) -> str | None:
        known = [voice.name for voice in self._engines[model].voices()]
        if self.voice in known:
            return self.voice
        return known[0] if known else None


def _check_request(wanted: Wanted, able: Capabilities) -> None:
    if wanted.language is not None:
        primary = wanted.language.split("-")[0].lower()
        if primary not in able.languages:
            known = ", ".join(sorted(able.languages))
            raise UnsupportedFeature(
                f"The model {able.model} speaks {known}.", field="language", limit=known
            )
    if wanted.source is not None and Mode.VOICE_CONVERSION not in able.modes:
        raise UnsupportedFeature(
            f"The model {able.model} cannot convert voices.", field="model", limit=able.model
        )
    slowest, fastest = able.speed
    if not slowest <= wanted.speed <= fastest:
        raise UnsupportedFeature(
            f"The model {able.model} speaks at speeds from {slowest:g} to {fastest:g}.",
            field="speed",
            limit=f"{slowest:g}..{fastest:g}",
        )
    if wanted.seed is not None and not 0 <= wanted.seed < 2**63:
        raise InvalidRequest("A seed lies between 0 and 2^63 − 1.", field="seed", limit="0..2^63-1")
    if wanted.instructions and Mode.INSTRUCT not in able.modes:
        raise UnsupportedFeature(
            f"The model {able.model} takes no instructions.", field="instructions"
        )
    if wanted.instructions and len(wanted.instructions) > MAX_INSTRUCTION:
        raise InvalidRequest(
            f"Instructions have at most {MAX_INSTRUCTION} characters.",
            field="instructions",
            limit=MAX_INSTRUCTION,
        )
    validate_text(wanted.instructions or "", field="instructions")
    for name in ("first_hop", "max_hop"):
        hop: int | None = getattr(wanted, name)
        if hop is None:
            continue
        if able.hop_tokens is None:
            raise UnsupportedFeature(f"The model {able.model} has no hops.", field=name)
        least, most = able.hop_tokens
        if not least <= hop <= most:
            raise InvalidRequest(
                f"{name} lies between {least} and {most} speech tokens.",
                field=name,
                limit=f"{least}..{most}",
            )
    if wanted.hop_growth is not None and able.hop_tokens is None:
        raise UnsupportedFeature(f"The model {able.model} has no hops.", field="hop_growth")
    _check_between("hop_growth", wanted.hop_growth, *GROWTHS)
    _check_between("lead_s", wanted.lead_s, 0.0, LONGEST_LEAD_S)
    if wanted.first_hop and wanted.max_hop and wanted.first_hop > wanted.max_hop:
        raise InvalidRequest(
            "first_hop is larger than max_hop.", field="first_hop", limit=wanted.max_hop
        )


def _check_between(field: str, value: float | None, least: float, most: float) -> None:
    # Written so that NaN is refused too.
    if value is not None and not least <= value <= most:
        raise InvalidRequest(
            f"{field} lies between {least:g} and {most:g}.",
            field=field,
            limit=f"{least:g}..{most:g}",
        )
