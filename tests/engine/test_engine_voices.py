"""Voices of a folder: spoken only by the model they fit, and only while consent lasts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import pytest_asyncio

from antiphon.engine.checkpoint import open_checkpoint
from antiphon.engine.cosyvoice import CosyVoiceEngine
from antiphon.engine.errors import ConsentRequired, UnknownVoice, UnsupportedFeature
from antiphon.engine.generations import load_stages
from antiphon.engine.interface import Mode, SpeechAudio, SpeechFinished, SpeechRequest
from antiphon.engine.voice.consent import Consent
from antiphon.engine.voice.folder import VoiceFolder
from antiphon.engine.voice.record import Voice
from antiphon.engine.voice.reference import ReferenceFeatures, checkpoint_fingerprint
from antiphon.engine.voice.store import VoiceStore
from antiphon.engine.watermark.none import NoWatermark
from tests import golden

GIVEN = datetime(2026, 1, 1, tzinfo=UTC)
CONSENT = Consent("Ada Example", GIVEN, ("speech",), GIVEN + timedelta(days=365))
TEXT = "Hello there, a small test. It has two sentences, and each of them is spoken. " * 3

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Clock:
    now = GIVEN + timedelta(days=1)

    def __call__(self) -> datetime:
        return self.now


def fox(name: str = "fox", consent: Consent | None = CONSENT, **changes: object) -> Voice:
    """The golden recording as a voice of the tiny checkpoint of version 3."""
    fingerprint = checkpoint_fingerprint(open_checkpoint(golden.model_dir(3)))
    assert fingerprint is not None
    voice = Voice(
        name=name,
        features=ReferenceFeatures(
            golden.array(3, "frontend", "zero_shot.speech_token")[0].long().numpy(),
            golden.array(3, "frontend", "zero_shot.prompt_speech_feat")[0].numpy(),
            golden.array(3, "frontend", "embedding")[0].numpy(),
        ),
        model="tiny",
        fingerprint=fingerprint,
        consent=consent,
        transcript="The quick brown fox jumps over the lazy dog.",
        language="en",
    )
    return replace(voice, **changes)  # type: ignore[arg-type]


class Place:
    """One engine and its folder."""

    def __init__(self, directory: Path) -> None:
        self.clock = Clock()
        self.folder = VoiceFolder(VoiceStore(directory), clock=self.clock)
        checkpoint = open_checkpoint(golden.model_dir(3))
        self.stages = load_stages(checkpoint, NoWatermark(), max_sessions=2)
        stages = replace(self.stages, length_ratios=(2.0, 3.0))
        self.engine = CosyVoiceEngine(checkpoint, stages, name="tiny", voices=self.folder)

    async def speak(self, voice: str) -> int:
        session = await self.engine.open_session(SpeechRequest(voice, seed=1))
        await session.push_text("Hello there, my friend.")
        await session.end_text()
        last = [event async for event in session.events()][-1]
        assert isinstance(last, SpeechFinished)
        return last.samples


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    made = Place(tmp_path_factory.mktemp("voices"))
    yield made
    await made.engine.close()


@pytest.fixture
def place(shared: Place) -> Place:
    for name in shared.folder.store.names():
        shared.folder.remove(name)
    shared.clock.now = GIVEN + timedelta(days=1)
    return shared


async def test_a_voice_is_there_as_soon_as_its_file_is(place: Place) -> None:
    assert [voice.name for voice in place.engine.voices()] == ["tiny_speaker"]
    with pytest.raises(UnknownVoice):
        await place.engine.open_session(SpeechRequest("fox"))
    place.folder.store.add(fox())
    place.folder.store.add(fox("silent_fox", transcript=""))
    listed = {voice.name: voice for voice in place.engine.voices()}
    assert list(listed) == ["tiny_speaker", "fox", "silent_fox"]
    assert listed["fox"].mode is Mode.ZERO_SHOT
    assert listed["silent_fox"].mode is Mode.CROSS_LINGUAL
    assert listed["fox"].language == "en"
    assert await place.speak("fox") > 0
    assert await place.speak("silent_fox") > 0


async def test_a_voice_for_another_model_is_refused_by_name(place: Place) -> None:
    place.folder.store.add(fox(fingerprint="0" * 32, model="CosyVoice2-0.5B"))
    assert [voice.name for voice in place.engine.voices()] == ["tiny_speaker"]
    with pytest.raises(UnsupportedFeature, match=r"CosyVoice2-0\.5B") as refused:
        await place.engine.open_session(SpeechRequest("fox"))
    assert refused.value.field == "voice"


@pytest.mark.parametrize(
    ("consent", "days", "field"),
    [
        (None, 1, "consent"),
        (CONSENT, 366, "consent.until"),
        (CONSENT, -1, "consent.given_at"),
        (replace(CONSENT, scope=("audiobooks",)), 1, "consent.scope"),
    ],
)
async def test_without_consent_now_no_session_opens(
    place: Place, consent: Consent | None, days: int, field: str
) -> None:
    place.folder.store.add(fox(consent=consent))
    place.clock.now = GIVEN + timedelta(days=days)
    with pytest.raises(ConsentRequired, match="fox") as refused:
        await place.engine.open_session(SpeechRequest("fox"))
    assert refused.value.field == field
    with pytest.raises(ConsentRequired):
        place.engine.check_voice("fox")


def _remove(place: Place) -> None:
    place.folder.remove("fox")


def _delete_file(place: Place) -> None:
    place.folder.store.remove("fox")


def _damage_file(place: Place) -> None:
    (place.folder.store._directory / "fox.voice").write_bytes(b"none")


def _expire(place: Place) -> None:
    place.clock.now = GIVEN + timedelta(days=366)


def _narrow(place: Place) -> None:
    place.folder.store.add(fox(consent=replace(CONSENT, scope=("audiobooks",))), replace=True)


def _record_another(place: Place) -> None:
    other = fox()
    features = replace(other.features, mel=(other.features.mel * np.float32(0.9)))
    place.folder.store.add(replace(other, features=features), replace=True)


@pytest.mark.parametrize(
    ("withdraw", "field"),
    [
        (_remove, "voice"),
        (_delete_file, "voice"),
        (_damage_file, "voice"),
        (_expire, "consent.until"),
        (_narrow, "consent.scope"),
        (_record_another, "voice"),
    ],
)
async def test_a_voice_that_is_withdrawn_falls_silent_within_a_hop(
    place: Place, withdraw: object, field: str
) -> None:
    place.folder.store.add(fox())
    session = await place.engine.open_session(SpeechRequest("fox", seed=1, max_hop=8))
    await session.push_text(TEXT)
    await session.end_text()
    events = session.events()
    while not isinstance(await anext(events), SpeechAudio):
        pass
    assert callable(withdraw)
    withdraw(place)
    heard_after = []

    async def listen() -> None:
        async for event in events:
            heard_after.append(event)

    with pytest.raises(ConsentRequired) as refused:
        await listen()
    assert not any(isinstance(event, SpeechAudio) for event in heard_after)
    assert refused.value.field == field
    assert place.engine.busy == 0


async def test_a_renewed_consent_lets_a_session_go_on(place: Place) -> None:
    place.folder.store.add(fox())
    session = await place.engine.open_session(SpeechRequest("fox", seed=1))
    await session.push_text("Hello there, my friend. This goes on for a while.")
    await session.end_text()
    events = session.events()
    while not isinstance(await anext(events), SpeechAudio):
        pass
    place.folder.store.add(
        fox(consent=replace(CONSENT, until=GIVEN + timedelta(days=900))), replace=True
    )
    place.clock.now = GIVEN + timedelta(days=500)
    last = [event async for event in events][-1]
    assert isinstance(last, SpeechFinished)


async def test_removal_drops_the_cached_prompt_at_once(place: Place) -> None:
    place.folder.store.add(fox())
    await place.speak("fox")
    before = place.stages.acoustic.cache_bytes  # type: ignore[attr-defined]
    assert before > 0
    place.folder.remove("fox")
    # The worker takes the message before the next stream opens.
    await place.speak("tiny_speaker")
    assert place.stages.acoustic.cache_bytes < before  # type: ignore[attr-defined]


async def test_a_voice_of_the_checkpoint_hides_one_of_the_folder(place: Place) -> None:
    place.folder.store.add(fox("tiny_speaker", consent=None))
    assert [voice.name for voice in place.engine.voices()] == ["tiny_speaker"]
    assert await place.speak("tiny_speaker") > 0
