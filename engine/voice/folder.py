"""A deployment's folder of `.voice` files, as it is at this moment.

Files may be added, replaced and removed under a running server, by it or by hand. Nothing here
trusts what it read before: a voice is compared with its file whenever it is used, so that a consent
that is withdrawn, or a file that is gone, ends speech within a hop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from antiphon.engine.errors import ConsentRequired, InvalidRequest
from antiphon.engine.voice.consent import SPEECH_PURPOSE, Consent
from antiphon.engine.voice.record import Voice
from antiphon.engine.voice.store import VoiceStore

Clock = Callable[[], datetime]
Gone = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class VoiceCard:
    """A voice without its arrays: what lists and checks need. Kept for every voice."""

    name: str
    language: str
    model: str
    fingerprint: str
    has_transcript: bool
    consent: Consent | None
    content: str
    """Identifies the arrays: equal for the same recording."""
    file: tuple[int, int, int]
    """Inode, size and time of change of the file it was read from."""


class VoiceFolder:
    """Voices of a folder, with their consent checked for one purpose. Used by one thread.

    `clock` tells the time by which consent begins and ends.
    """

    def __init__(
        self,
        store: VoiceStore,
        *,
        purpose: str = SPEECH_PURPOSE,
        clock: Clock = lambda: datetime.now(UTC),
    ) -> None:
        self.store = store
        self.purpose = purpose
        self._clock = clock
        self._cards: dict[str, VoiceCard] = {}
        self._changed: int | None = None
        self._watchers: list[Gone] = []

    def watch(self, gone: Gone) -> None:
        """Have `gone` called with the name of a voice that was removed or replaced."""
        self._watchers.append(gone)

    def cards(self) -> list[VoiceCard]:
        """Return all voices by name. Files that are no voices are passed over."""
        changed = self.store.changed()
        if changed != self._changed:
            self._changed = changed
            names = self.store.names()
            for name in [*names, *(self._cards.keys() - set(names))]:
                try:
                    self.card(name)
                except (InvalidRequest, OSError):
                    continue
        return [self._cards[name] for name in sorted(self._cards)]

    def card(self, name: str) -> VoiceCard:
        """Return a voice as its file says now.

        Raises:
            UnknownVoice: there is no such file.
            InvalidRequest: the file is damaged.
        """
        known = self._cards.get(name)
        try:
            file = self.store.identity(name)
            if known is not None and known.file == file:
                return known
            card = _card(self.store.load(name), file)
        except InvalidRequest:
            self._drop(name)
            raise
        if known is not None and known != card:
            self._drop(name)
        self._cards[name] = card
        return card

    def load(self, name: str) -> Voice:
        """Return a voice with its arrays; raises as `card` does."""
        self.card(name)
        return self.store.load(name)

    def require(self, name: str) -> VoiceCard:
        """Return a voice if it may be used now.

        Raises:
            UnknownVoice: there is no such voice.
            ConsentRequired: naming what forbids it.
            InvalidRequest: the file is damaged.
        """
        card = self.card(name)
        if card.consent is None:
            raise ConsentRequired(
                f"There is no record of consent to use the voice {name}.", field="consent"
            )
        try:
            card.consent.require(self.purpose, self._clock())
        except ConsentRequired as error:
            raise ConsentRequired(
                f"{error.message} The voice is {name}.", field=error.field, limit=error.limit
            ) from None
        return card

    def require_still(self, card: VoiceCard) -> None:
        """Return if a voice that speaks may go on.

        Raises:
            ConsentRequired: it was removed, replaced or damaged, or its consent ended.
        """
        try:
            now = self.require(card.name)
        except ConsentRequired:
            raise
        except InvalidRequest as error:
            raise ConsentRequired(
                f"The voice {card.name} was withdrawn while it spoke.", field="voice"
            ) from error
        if now.content != card.content:
            raise ConsentRequired(
                f"The voice {card.name} was replaced while it spoke.", field="voice"
            )

    def add(self, voice: Voice, *, replace: bool = False) -> None:
        """Store a voice; whoever watches lets go of the one that it replaces.

        Raises:
            InvalidRequest: the name is taken and `replace` is not set, or the folder is full.
        """
        self.store.add(voice, replace=replace)
        self.card(voice.name)

    def remove(self, name: str) -> None:
        """Delete a voice; whoever watches lets go of it before this returns.

        Raises:
            UnknownVoice: there is none of that name.
        """
        self.store.remove(name)
        self._drop(name)

    def _drop(self, name: str) -> None:
        if self._cards.pop(name, None) is not None:
            for gone in self._watchers:
                gone(name)


def _card(voice: Voice, file: tuple[int, int, int]) -> VoiceCard:
    return VoiceCard(
        name=voice.name,
        language=voice.language,
        model=voice.model,
        fingerprint=voice.fingerprint,
        has_transcript=bool(voice.transcript.strip()),
        consent=voice.consent,
        content=voice.acoustic_prompt().key,
        file=file,
    )
