"""Voices are files: what goes in comes out, and nothing else gets in."""

from __future__ import annotations

import json
import pickle
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engine.errors import (
    ConsentRequired,
    InvalidRequest,
    UnknownVoice,
    UnsupportedFeature,
)
from antiphon.engine.voice.consent import Consent
from antiphon.engine.voice.record import Voice
from antiphon.engine.voice.reference import ReferenceFeatures
from antiphon.engine.voice.store import VoiceStore
from antiphon.engine.voice.voice_file import (
    MAX_BYTES,
    load_voice,
    save_voice,
    voice_from_bytes,
    voice_to_bytes,
)

GIVEN = datetime(2026, 1, 1, tzinfo=UTC)
CONSENT = Consent("Ada Example", GIVEN, ("speech",), GIVEN + timedelta(days=365))


def make_voice(tokens: int = 750, consent: Consent | None = CONSENT) -> Voice:
    random = np.random.default_rng(1)
    features = ReferenceFeatures(
        random.integers(0, 6561, tokens),
        random.normal(size=(2 * tokens, 80)).astype(np.float32),
        random.normal(size=192).astype(np.float32),
    )
    return Voice(
        name="ada",
        features=features,
        model="CosyVoice2-0.5B",
        fingerprint="f" * 32,
        consent=consent,
        transcript="Good morning — 早上好.",
        language="en",
        quality={"snr_db": 41.5},
    )


def test_a_voice_survives_its_file_and_loads_in_10_ms(tmp_path: Path) -> None:
    voice = make_voice()
    path = tmp_path / "ada.voice"
    save_voice(voice, path)
    loaded = load_voice(path)
    for name in ("name", "model", "fingerprint", "consent", "transcript", "language", "created"):
        assert getattr(loaded, name) == getattr(voice, name)
    assert loaded.quality == {"snr_db": 41.5}
    np.testing.assert_array_equal(loaded.features.tokens, voice.features.tokens)
    np.testing.assert_array_equal(loaded.features.mel, voice.features.mel)
    np.testing.assert_array_equal(loaded.features.embedding, voice.features.embedding)
    assert loaded.acoustic_prompt().key == voice.acoustic_prompt().key
    assert [entry.name for entry in tmp_path.iterdir()] == ["ada.voice"]
    durations = []
    for _ in range(5):
        started = time.perf_counter()
        load_voice(path)
        durations.append(time.perf_counter() - started)
    assert min(durations) < 0.010


def test_lm_prompt_leaves_speech_out_where_the_mode_asks() -> None:
    voice = make_voice(tokens=5)
    assert voice.lm_prompt([7]).speech_ids == tuple(voice.features.tokens.tolist())
    assert voice.lm_prompt(speech=False).speech_ids == ()
    assert len(voice.lm_prompt().speaker) == 192


def test_a_voice_of_another_model_is_refused_with_both_names() -> None:
    voice = make_voice(tokens=5)
    voice.require_model("f" * 32, "CosyVoice2-0.5B")
    with pytest.raises(UnsupportedFeature, match=r"CosyVoice2-0\.5B.*CosyVoice-300M"):
        voice.require_model("0" * 32, "CosyVoice-300M")


@pytest.mark.parametrize(
    ("consent", "purpose", "days", "field"),
    [
        (None, "speech", 1, "consent"),
        (CONSENT, "speech", 365, "consent.until"),
        (CONSENT, "speech", -1, "consent.given_at"),
        (CONSENT, "advertising", 1, "consent.scope"),
    ],
)
def test_use_without_consent_is_refused(
    consent: Consent | None, purpose: str, days: int, field: str
) -> None:
    voice = make_voice(tokens=5, consent=consent)
    with pytest.raises(ConsentRequired) as caught:
        voice.require_consent(purpose=purpose, now=GIVEN + timedelta(days=days))
    assert caught.value.field == field


def test_use_within_consent_is_allowed() -> None:
    make_voice(tokens=5).require_consent(now=GIVEN + timedelta(days=364))
    unlimited = Consent("Ada", GIVEN, ("any",))
    make_voice(tokens=5, consent=unlimited).require_consent(purpose="advertising")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"given_by": " "}, "consent.given_by"),
        ({"scope": ()}, "consent.scope"),
        ({"until": GIVEN}, "consent.until"),
        ({"given_at": GIVEN.replace(tzinfo=None)}, "consent.given_at"),
    ],
)
def test_consent_that_says_nothing_is_refused(change: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        replace(CONSENT, **change)  # type: ignore[arg-type]
    assert caught.value.field == field


def with_record(**changes: object) -> bytes:
    voice = make_voice(tokens=5)
    content = voice_to_bytes(voice)
    length = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + length])["__metadata__"]
    record = json.loads(metadata["record"])
    for key, value in changes.items():
        if key in metadata:
            metadata[key] = value
        else:
            record[key] = value
    if "record" not in changes:
        metadata["record"] = json.dumps(record)
    arrays = {
        "tokens": voice.features.tokens.astype(np.int32),
        "mel": voice.features.mel,
        "embedding": voice.features.embedding,
    }
    return safetensors.numpy.save(arrays, metadata=metadata)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 8,
        b"\x02\0\0\0\0\0\0\0{}",
        pickle.dumps({"tokens": [1]}),
        b"PK\x03\x04" + b"\0" * 100,
        safetensors.numpy.save({"tokens": np.zeros(3, np.int32)}),
        with_record(format="other"),
        with_record(version="2"),
        with_record(record="{"),
        with_record(record="[" * 100_000),
        with_record(name="../../etc/passwd"),
        with_record(name=3),
        with_record(created="yesterday"),
        with_record(quality={"snr": "high"}),
        with_record(consent={"given_by": "x"}),
        with_record(consent={"given_by": "x", "given_at": 3, "scope": ["any"]}),
        with_record(unknown=1),
        b"\0" * (MAX_BYTES + 1),
    ],
)
def test_files_that_are_no_voices_are_refused(content: bytes) -> None:
    with pytest.raises(InvalidRequest):
        voice_from_bytes(content)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tokens", np.full(5, -1, np.int32)),
        ("tokens", np.zeros(5, np.float32)),
        ("tokens", np.zeros(0, np.int32)),
        ("mel", np.full((10, 80), np.nan, np.float32)),
        ("embedding", np.zeros(191, np.float32)),
    ],
)
def test_arrays_that_no_enrolment_writes_are_refused(name: str, value: np.ndarray) -> None:  # type: ignore[type-arg]
    content = with_record()
    arrays = safetensors.numpy.load(content)
    length = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + length])["__metadata__"]
    with pytest.raises(InvalidRequest):
        voice_from_bytes(safetensors.numpy.save({**arrays, name: value}, metadata=metadata))


@settings(max_examples=200, deadline=1000)
@given(
    places=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=8),
    keep=st.floats(0, 1),
)
def test_damaged_files_load_or_fail_typed(places: list[tuple[float, int]], keep: float) -> None:
    content = bytearray(with_record())
    header = 8 + int.from_bytes(content[:8], "little")
    for place, value in places:
        content[int(place * (header - 1))] = value
    try:
        voice_from_bytes(bytes(content[: int(len(content) * keep)]))
    except InvalidRequest as error:
        assert error.field is not None  # noqa: PT017


def test_a_store_keeps_voices_by_name(tmp_path: Path) -> None:
    store = VoiceStore(tmp_path / "voices", limit=1)
    voice = make_voice(tokens=5)
    store.add(voice)
    assert store.names() == ["ada"]
    assert store.load("ada").transcript == voice.transcript
    with pytest.raises(InvalidRequest, match="already"):
        store.add(voice)
    store.add(replace(voice, transcript="New."), replace=True)
    assert store.load("ada").transcript == "New."
    with pytest.raises(InvalidRequest, match="No more"):
        store.add(replace(voice, name="eve"))
    for name in ("eve", "../ada", ""):
        with pytest.raises(UnknownVoice):
            store.load(name)
    (tmp_path / "voices" / "bob.voice").write_bytes(voice_to_bytes(voice))
    with pytest.raises(InvalidRequest, match="holds the voice ada"):
        store.load("bob")
    store.remove("ada")
    with pytest.raises(UnknownVoice):
        store.remove("ada")
