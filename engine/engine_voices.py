"""The voices of one engine: those of its checkpoint, and those of the deployment's folder that
were made for it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from antiphon.engine.errors import InvalidRequest, UnknownVoice, UnsupportedFeature
from antiphon.engine.interface import VoiceInfo
from antiphon.engine.prompts import PromptMaker, PromptVoice
from antiphon.engine.voice.folder import VoiceCard, VoiceFolder
from antiphon.engine.voice.record import Voice

KEPT = 64
"""Voices of the folder whose arrays (up to 0.8 MB) stay in memory after use."""
MOST_NAMED = 20
"""Names in an error message."""

RequireAllowed = Callable[[], None]


class EngineVoices:
    """Voices by name. A voice of the checkpoint hides one of the folder of the same name."""

    def __init__(
        self,
        model: str,
        prompts: PromptMaker,
        built_in: Iterable[PromptVoice],
        *,
        folder: VoiceFolder | None = None,
        fingerprint: str | None = None,
        forget: Callable[[str], None] | None = None,
        revoke: Callable[[str], None] | None = None,
    ) -> None:
        """Take the voices of a checkpoint and, where its `fingerprint` is known, of a folder.

        `forget` is called with the key of an acoustic prompt that must not be kept any longer,
        `revoke` with the name of a voice that was removed, replaced or changed.
        """
        self._model = model
        self._prompts = prompts
        self._built_in = {voice.name: voice for voice in built_in}
        self._infos = [self._info(voice, f"voice of {model}") for voice in self._built_in.values()]
        self._card_infos: dict[str, tuple[VoiceCard, VoiceInfo | None]] = {}
        self._folder = folder
        self._fingerprint = fingerprint
        self._forget = forget
        self._revoke = revoke
        self._loaded: OrderedDict[str, tuple[VoiceCard, PromptVoice]] = OrderedDict()
        if folder is not None:
            folder.watch(self._gone)

    def infos(self) -> list[VoiceInfo]:
        """Return all voices, those of the checkpoint first; some may be refused at the moment."""
        found = map(self._card_info, self._cards())
        return [*self._infos, *(info for info in found if info is not None)]

    def check(self, name: str) -> None:
        """Return if a voice may be used now.

        Raises:
            UnknownVoice: there is none of that name.
            UnsupportedFeature: it was made for another model.
            ConsentRequired: naming what forbids it.
        """
        if name not in self._built_in:
            self._card(name)

    def get(self, name: str) -> tuple[PromptVoice, RequireAllowed | None]:
        """Return a voice and what to call for as long as it speaks; raises as `check` does."""
        if name in self._built_in:
            return self._built_in[name], None
        card = self._card(name)
        assert self._folder is not None
        found = self._loaded.get(name)
        if found is None or found[0].content != card.content:
            found = (card, self._prompts.recorded(self._folder.load(name)))
            self._loaded[name] = found
            while len(self._loaded) > KEPT:
                self._loaded.popitem(last=False)
        self._loaded.move_to_end(name)
        return found[1], partial(self._folder.require_still, card)

    def check_new(self, voice: Voice) -> None:
        """Return if a voice of a recording could be used here.

        Raises:
            InvalidRequest: a name of the checkpoint's own, or a transcript that cannot be read.
        """
        if voice.name in self._built_in:
            raise InvalidRequest(
                f"The model {self._model} has a voice {voice.name} of its own.", field="name"
            )
        self._prompts.recorded(voice)

    def first(self) -> PromptVoice | None:
        """Return a voice of the checkpoint, to try it out."""
        return next(iter(self._built_in.values()), None)

    def _cards(self) -> list[VoiceCard]:
        if self._folder is None:
            return []
        return [
            card
            for card in self._folder.cards()
            if card.fingerprint == self._fingerprint and card.name not in self._built_in
        ]

    def _card(self, name: str) -> VoiceCard:
        if self._folder is None:
            raise self._unknown(name)
        try:
            card = self._folder.card(name)
        except UnknownVoice:
            raise self._unknown(name) from None
        if card.fingerprint != self._fingerprint:
            raise UnsupportedFeature(
                f"The voice {name} was made for {card.model} and cannot be used with "
                f"{self._model}; enrol its recording again with this model.",
                field="voice",
            )
        return self._folder.require(name)

    def _unknown(self, name: str) -> UnknownVoice:
        known = [info.name for info in self.infos()]
        listed = ", ".join([*known[:MOST_NAMED], *(["…"] if len(known) > MOST_NAMED else [])])
        return UnknownVoice(
            f"The model {self._model} has no voice {name[:64]!r}; it has {listed or 'none yet'}.",
            field="voice",
            limit=listed,
        )

    def _info(self, voice: PromptVoice, description: str) -> VoiceInfo:
        return VoiceInfo(
            name=voice.name,
            language=voice.language or "und",
            description=description,
            mode=self._prompts.mode(voice),
            first_token_text_tokens=self._prompts.fit(voice).caller_text_needed,
        )

    def _card_info(self, card: VoiceCard) -> VoiceInfo | None:
        """Read a voice once for its entry in the list; None where it is none after all."""
        known = self._card_infos.get(card.name)
        if known is not None and known[0] == card:
            return known[1]
        assert self._folder is not None
        info = None
        with suppress(InvalidRequest):
            voice = self._prompts.recorded(self._folder.load(card.name))
            info = self._info(voice, "voice from a recording")
        self._card_infos[card.name] = (card, info)
        return info

    def _gone(self, name: str) -> None:
        if self._revoke is not None:
            self._revoke(name)
        self._card_infos.pop(name, None)
        found = self._loaded.pop(name, None)
        if found is not None and self._forget is not None:
            self._forget(found[1].acoustic.key)
