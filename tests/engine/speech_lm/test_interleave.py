"""The layouts as state machines: what is fed, when, and what may be sampled."""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engine.checkpoint.config import LMConfig, Qwen2Config, RASConfig, SpeechIds
from antiphon.engine.errors import InvalidRequest
from antiphon.engine.interface import FinishReason
from antiphon.engine.speech_lm.interleave import (
    BistreamSequence,
    Lengths,
    PlainSequence,
    check_prompt,
)
from antiphon.engine.speech_lm.layout import Constraint, End, Sample, Vocabulary, Wait
from antiphon.engine.voice.voice import LMPrompt

CODES, TEXTS, END_OF_PROMPT = 50, 40, 39
EOS, FILL = CODES + 1, CODES + 3
LENGTHS = Lengths(2.0, 20.0)


def vocabulary(mix: tuple[int, int] = (5, 15), silent: frozenset[int] = frozenset()) -> Vocabulary:
    ids = SpeechIds(CODES, EOS, CODES + 2, FILL, CODES, CODES + 200, True)
    backbone = Qwen2Config(TEXTS, 8, 8, 1, 1, 1, 4096, 1e-6, 1e4)
    sampling = RASConfig(0.8, 25, 10, 0.1)
    config = LMConfig(CODES, mix, sampling, backbone, ids, False, silent, 5, True)
    return Vocabulary(config)


def speaker(seed: int, fills: float, ends: float) -> Callable[[int, Constraint], int]:
    """A model whose choice at step n depends on n alone, now and then a fill or an end."""

    def choose(step: int, constraint: Constraint) -> int:
        draw = random.Random(seed * 100_003 + step)
        if constraint is Constraint.SPEECH_OR_FILL and draw.random() < fills:
            return FILL
        if constraint is Constraint.SPEECH_OR_EOS and draw.random() < ends:
            return EOS
        return draw.randrange(CODES)

    return choose


def play(
    machine: BistreamSequence | PlainSequence,
    choose: Callable[[int, Constraint], int],
    pieces: list[tuple[int, ...]],
    early: bool,
) -> tuple[list[int], list[int], FinishReason]:
    """Run a machine; text arrives all at the start or only when it is waited for."""
    fed: list[int] = []
    heard: list[int] = []
    waiting = list(pieces)
    if early:
        for piece in waiting:
            machine.push_text(piece)
        machine.end_text()
        waiting = []
    for _ in range(20_000):
        step = machine.advance()
        if isinstance(step, End):
            return fed, heard, step.reason
        fed.extend(step.inputs)
        if isinstance(step, Wait):
            if waiting:
                machine.push_text(waiting.pop(0))
            else:
                machine.end_text()
            continue
        assert isinstance(step, Sample)
        assert step.inputs, "a sample needs something to follow"
        token = machine.accept(choose(len(machine.history), step.constraint))
        if token is not None:
            heard.append(token)
    raise AssertionError("the machine does not end")


texts = st.lists(st.integers(0, TEXTS - 2), min_size=1, max_size=30).map(tuple)
prompts = st.builds(
    lambda text, speech: LMPrompt((END_OF_PROMPT, *text), tuple(speech)),
    st.lists(st.integers(0, TEXTS - 2), max_size=20),
    st.lists(st.integers(0, CODES - 1), max_size=40),
)
mixes = st.tuples(st.integers(1, 9), st.integers(1, 16))


@st.composite
def splits(draw: st.DrawFn, text: tuple[int, ...]) -> list[tuple[int, ...]]:
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=12)))
    edges = [0, *cuts, len(text)]
    return [text[a:b] for a, b in itertools.pairwise(edges) if b > a]


@settings(max_examples=40, deadline=None)
@given(data=st.data(), text=texts, prompt=prompts, mix=mixes, seed=st.integers(0, 99))
def test_any_split_gives_the_same_sequence(
    data: st.DataObject,
    text: tuple[int, ...],
    prompt: LMPrompt,
    mix: tuple[int, int],
    seed: int,
) -> None:
    """Also whether the pieces arrive early or only when they are waited for."""
    whole = vocabulary(mix)
    choose = speaker(seed, fills=0.05, ends=0.1)
    expected = play(
        BistreamSequence(whole, prompt, END_OF_PROMPT, LENGTHS), choose, [text], early=True
    )
    for early in (True, False):
        pieces = data.draw(splits(text))
        machine = BistreamSequence(whole, prompt, END_OF_PROMPT, LENGTHS)
        assert play(machine, choose, pieces, early) == expected


@settings(max_examples=40, deadline=None)
@given(text=texts, prompt=prompts, mix=mixes, seed=st.integers(0, 99))
def test_every_text_id_is_fed_once_and_in_order_and_no_fill_is(
    text: tuple[int, ...], prompt: LMPrompt, mix: tuple[int, int], seed: int
) -> None:
    place = vocabulary(mix)
    machine = BistreamSequence(place, prompt, END_OF_PROMPT, LENGTHS)
    fed, _, _ = play(machine, speaker(seed, 0.1, 0.2), [text], early=True)
    expected = [place.text(t) for t in (*prompt.text_ids, *text)]
    assert [token for token in fed if token >= place.rows] == expected
    assert FILL not in fed
    assert EOS not in fed
    assert fed.count(place.task) == 1
    assert fed[0] == place.sos


@settings(max_examples=40, deadline=None)
@given(text=texts, prompt=prompts, mix=mixes, seed=st.integers(0, 99))
def test_blocks_keep_the_mix_ratio_and_the_prompt_is_neither_dropped_nor_spoken(
    text: tuple[int, ...], prompt: LMPrompt, mix: tuple[int, int], seed: int
) -> None:
    """With forced fills alone, speech token n follows at least t · (n // s + 1) text ids."""
    place = vocabulary(mix)
    machine = BistreamSequence(place, prompt, END_OF_PROMPT, LENGTHS)
    fed, heard, _ = play(machine, speaker(seed, 0.0, 0.2), [text], early=True)
    per_text, per_speech = mix
    speech = [token for token in fed if token < CODES]
    assert speech[: len(prompt.speech_ids)] == list(prompt.speech_ids)
    assert heard[: len(speech) - len(prompt.speech_ids)] == speech[len(prompt.speech_ids) :]
    texts_before = speech_before = 0
    instruction = 1
    for token in fed:
        if token == place.task:
            break
        texts_before += token >= place.rows
        if token < CODES:
            assert texts_before - instruction >= per_text * (speech_before // per_speech + 1)
            speech_before += 1


@settings(max_examples=40, deadline=None)
@given(text=texts, prompt=prompts, mix=mixes)
def test_nothing_is_sampled_before_text_of_the_callers(
    text: tuple[int, ...], prompt: LMPrompt, mix: tuple[int, int]
) -> None:
    machine = BistreamSequence(vocabulary(mix), prompt, END_OF_PROMPT, LENGTHS)
    assert isinstance(machine.advance(), Wait)
    for count, token in enumerate(text):
        machine.push_text((token,))
        step = machine.advance()
        if isinstance(step, Sample):
            fed = count + 1
            assert fed >= 1
            return
    machine.end_text()
    assert isinstance(machine.advance(), Sample)


def test_speech_ends_at_the_longest_even_if_the_model_never_does() -> None:
    machine = BistreamSequence(
        vocabulary(), LMPrompt((END_OF_PROMPT,)), END_OF_PROMPT, Lengths(2, 6)
    )
    _, heard, reason = play(machine, speaker(1, 0, 0), [(1,) * 7], early=True)
    assert reason is FinishReason.LENGTH
    assert len(heard) == 42
    plain = PlainSequence(vocabulary(), LMPrompt((END_OF_PROMPT,)), (1,) * 7, Lengths(2, 6))
    _, heard, reason = play(plain, speaker(1, 0, 0), [], early=False)
    assert reason is FinishReason.LENGTH
    assert len(heard) == 42


def test_speech_does_not_end_before_the_shortest() -> None:
    for machine in (
        BistreamSequence(vocabulary(), LMPrompt((END_OF_PROMPT,)), END_OF_PROMPT, LENGTHS),
        PlainSequence(vocabulary(), LMPrompt((END_OF_PROMPT,)), (1,) * 11, LENGTHS),
    ):
        pieces = [(1,) * 11] if isinstance(machine, BistreamSequence) else []
        _, heard, reason = play(machine, speaker(1, 0, 1.0), pieces, bool(pieces))
        assert reason is FinishReason.STOP
        assert len(heard) == (30 if pieces else 22)


def test_no_text_is_no_work() -> None:
    machine = BistreamSequence(vocabulary(), LMPrompt((END_OF_PROMPT,)), END_OF_PROMPT, LENGTHS)
    machine.end_text()
    assert machine.advance() == End(FinishReason.EMPTY)
    plain = PlainSequence(vocabulary(), LMPrompt((END_OF_PROMPT,)), (), LENGTHS)
    assert plain.advance() == End(FinishReason.EMPTY)


def test_a_sampled_fill_asks_for_text_at_once_and_is_not_fed() -> None:
    place = vocabulary()
    machine = BistreamSequence(place, LMPrompt((END_OF_PROMPT,)), END_OF_PROMPT, LENGTHS)
    machine.push_text((1,) * 10)
    assert isinstance(machine.advance(), Sample)
    assert machine.accept(7) == 7
    machine.advance()
    assert machine.accept(FILL) is None
    step = machine.advance()
    assert isinstance(step, Sample)
    assert step.inputs == (place.text(1),) * 5
    assert machine.history == [7, FILL]


def test_a_loop_is_noticed_and_a_long_vowel_is_not() -> None:
    def cycle(*ids: int) -> tuple[int, FinishReason]:
        machine = PlainSequence(vocabulary(), LMPrompt((END_OF_PROMPT,)), (1,) * 30, LENGTHS)

        def choose(step: int, _: Constraint) -> int:
            return ids[step % len(ids)] if step < 400 else EOS

        _, heard, reason = play(machine, choose, [], early=False)
        return len(heard), reason

    assert cycle(3, 4, 5) == (78, FinishReason.TOKEN_LOOP)
    assert cycle(*range(40)) == (400, FinishReason.STOP)


def test_long_silence_is_shortened_for_the_listener_and_kept_for_the_model() -> None:
    script = [5, 1, 2, 28, 29, 30, 31, 32, 7, 1, 1, EOS]
    silent = frozenset((1, 2, 28, 29, 30, 31, 32))
    machine = PlainSequence(
        vocabulary(silent=silent), LMPrompt((END_OF_PROMPT,)), (1,), Lengths(0, 20)
    )
    fed, heard, _ = play(machine, lambda step, _: script[step], [], early=False)
    assert heard == [5, 1, 2, 28, 29, 30, 7, 1, 1]
    assert fed[-11:] == script[:-1]


def test_a_missing_end_of_prompt_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_prompt(True, END_OF_PROMPT, LMPrompt((1, 2)), (3, 4))
    assert refused.value.field == "prompt"
    check_prompt(True, END_OF_PROMPT, LMPrompt((1, 2)), (3, END_OF_PROMPT, 4))
    with pytest.raises(InvalidRequest):
        check_prompt(True, END_OF_PROMPT, LMPrompt((1, 2)), None)


def test_version_two_keeps_its_special_rows_behind_the_text() -> None:
    config = vocabulary().config
    ids = dataclasses.replace(
        config.ids, sos=0, task=1, rows=CODES + 3, sos_and_task_are_speech_rows=False
    )
    place = Vocabulary(dataclasses.replace(config, ids=ids))
    assert (place.sos, place.task, place.size) == (CODES + 3 + TEXTS, CODES + 4 + TEXTS, 95)


def test_an_instruction_stands_in_front_of_the_blocks_in_version_two_as_well() -> None:
    config = dataclasses.replace(vocabulary().config, needs_end_of_prompt=False)
    place = Vocabulary(config)
    prompt = LMPrompt((3, 4, END_OF_PROMPT, 7), (9, 9))
    machine = BistreamSequence(place, prompt, END_OF_PROMPT, LENGTHS)
    step = machine.advance()
    assert isinstance(step, Wait)
    assert step.inputs == (place.sos, *map(place.text, (3, 4, END_OF_PROMPT)))
    machine.push_text((1, 1, 1, 1))
    step = machine.advance()
    assert isinstance(step, Sample)
    assert step.inputs == (*map(place.text, (7, 1, 1, 1, 1)), 9, 9)
