from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from antiphon.engine.speech_lm.interleave import BistreamSequence, Lengths
from antiphon.engine.speech_lm.layout import Sample
from antiphon.engine.speech_lm.prompt_fit import Cut, caller_text_needed, fit_prompt
from antiphon.engine.voice.voice import LMPrompt
from tests.engine.speech_lm.test_interleave import END_OF_PROMPT, vocabulary


@settings(max_examples=40, deadline=None)
@given(
    speech=st.integers(0, 120),
    text=st.integers(0, 60),
    mix=st.tuples(st.integers(1, 9), st.integers(1, 16)),
)
def test_the_needed_text_is_what_the_machine_waits_for(
    speech: int, text: int, mix: tuple[int, int]
) -> None:
    prompt = LMPrompt((END_OF_PROMPT, *[1] * text), (2,) * speech)
    machine = BistreamSequence(vocabulary(mix), prompt, END_OF_PROMPT, Lengths(2, 20))
    pushed = 0
    while not isinstance(machine.advance(), Sample):
        machine.push_text((1,))
        pushed += 1
    assert pushed == caller_text_needed(speech, text, mix)


def test_the_formula_of_the_layout() -> None:
    assert caller_text_needed(101, 10, (5, 15)) == 25  # 5 · ceil(101 / 15) − 10
    assert caller_text_needed(15, 3, (5, 15)) == 7  # 15 divides P: one block more
    assert caller_text_needed(0, 0, (8, 12)) == 8


def test_the_prompt_is_cut_where_least_text_is_needed() -> None:
    prompt = LMPrompt((END_OF_PROMPT, *range(10)), tuple(range(30, 45)) * 4)
    whole = fit_prompt(prompt, mix_ratio=(5, 15), end_of_prompt=END_OF_PROMPT)
    assert whole.prompt == prompt
    assert whole.caller_text_needed == 15
    fitted = fit_prompt(
        prompt, mix_ratio=(5, 15), end_of_prompt=END_OF_PROMPT, cuts=[Cut(1, 20), Cut(2, 47)]
    )
    assert fitted.caller_text_needed == 2
    assert fitted.prompt.text_ids == (END_OF_PROMPT, *range(2, 10))
    assert fitted.prompt.speech_ids == prompt.speech_ids[47:]


def test_nano_voices_speak_after_one_block_without_lm_prompt() -> None:
    prompt = LMPrompt((END_OF_PROMPT, *range(30)), (1,) * 110)
    fitted = fit_prompt(prompt, mix_ratio=(8, 12), end_of_prompt=END_OF_PROMPT, allow_empty=True)
    assert fitted.prompt == LMPrompt((END_OF_PROMPT,))
    assert fitted.caller_text_needed == 8
